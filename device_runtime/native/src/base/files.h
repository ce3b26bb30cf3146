// Atomic file writes, and reading small files whole. The rules are those of device_runtime/base/files.py.
#pragma once

#include <cstddef>
#include <string>

#include "base/error.h"

namespace phonograd {

// Writes to `.NAME.XXXXXXXX.partial` beside `path`; commit() syncs it and renames it to `path`. Without commit() the
// destructor removes it. Every method throws Error(storage) "PATH: cannot write: REASON; free space or choose another
// place". Owns its descriptor. One thread at a time.
class AtomicFile {
 public:
  // `mode` as for open(): the process's umask applies.
  explicit AtomicFile(const std::string& path, unsigned mode = 0666);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t bytes);  // appends all bytes
  void commit();                               // fsync, rename, fsync of the folder; call it once, and last

 private:
  [[noreturn]] void fail(int error) const;

  std::string path_;
  std::string folder_;
  std::string partial_;  // "" after the rename
  int descriptor_ = -1;
};

// Write a small file atomically. Throws Error(storage).
void write_file(const std::string& path, const void* data, size_t bytes);

// Read a whole file. Throws Error(status) if it can't be opened or read, or holds more than `cap` bytes.
std::string read_file(const std::string& path, size_t cap, Status status);

// The message of an errno value, such as "No space left on device".
std::string reason_of(int error);

}  // namespace phonograd
