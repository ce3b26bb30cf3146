// SHA-256 (FIPS 180-4), fed in pieces.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/error.h"

namespace phonograd {

// One thread at a time; copyable, so that a common beginning need be hashed only once.
class Sha256 {
 public:
  void update(const void* data, size_t bytes);
  std::string hex();  // the digest of all bytes so far, 64 lower-case digits; nothing may be added afterwards

 private:
  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<unsigned char, 64> pending_{};
  uint64_t bytes_ = 0;
};

// Whether the text could be a digest: 64 lower-case hexadecimal digits.
bool is_sha256(const std::string& text);

std::string sha256_hex(const void* data, size_t bytes);

// The digest of an open file's bytes, all of them, whatever its current offset. `path` is for errors. Throws
// Error(status) if it can't be read.
std::string sha256_of_descriptor(int descriptor, const std::string& path, Status status);

// The digest of a file's bytes. Throws Error(status) if it can't be opened or read.
std::string sha256_of_file(const std::string& path, Status status);

}  // namespace phonograd
