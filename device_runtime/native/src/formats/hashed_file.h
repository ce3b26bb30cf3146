// Files that are hashed while they are written.
#pragma once

#include <cstddef>
#include <string>

#include "base/files.h"
#include "formats/sha256.h"

namespace phonograd {

// What a writer produced.
struct Written {
  size_t bytes = 0;
  std::string sha256;
};

// Hashes what it writes to another file.
class HashedFile final : public OutputFile {
 public:
  explicit HashedFile(OutputFile& file) : file_(file) {}
  void write(const void* data, size_t bytes) override {
    digest_.update(data, bytes);
    bytes_ += bytes;
    file_.write(data, bytes);
  }
  void commit() override { file_.commit(); }
  // Size and hash of what was written. Call it once.
  Written result() { return {bytes_, digest_.hex()}; }

 private:
  OutputFile& file_;
  Sha256 digest_;
  size_t bytes_ = 0;
};

}  // namespace phonograd
