// Memory-mapped files. Reading one stays safe when another process truncates it.
#pragma once

#include <cstddef>

namespace phonograd {

// A private mapping of a file, from its first byte. Owns the memory, not the descriptor. Movable; const methods are
// thread-safe.
//
// Touching a page that can no longer be read (the file was truncated, the disk failed) raises SIGBUS, which would kill
// the process. The first mapping installs a handler that replaces such a page by zeros, so that the running work
// reaches its next check of lost(). Faults at other addresses go to the previous handler.
class Mapping {
 public:
  Mapping() = default;
  // writable: copy-on-write; the file never changes. Throws std::system_error with errno.
  Mapping(int descriptor, size_t bytes, bool writable);
  ~Mapping();
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;

  unsigned char* data() const { return data_; }
  // Whether part of the file could not be read and was replaced by zeros.
  bool lost() const;

 private:
  unsigned char* data_ = nullptr;
  size_t bytes_ = 0;
  int slot_ = -1;
};

}  // namespace phonograd
