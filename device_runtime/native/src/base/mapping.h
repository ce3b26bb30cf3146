// A file in memory, whose pages load as they are touched, and which survives that the file is cut short meanwhile.
#pragma once

#include <cstddef>

namespace phonograd {

// A private mapping of a file, from its first byte. Owns the memory, not the descriptor. Movable; const methods are
// thread-safe.
//
// Touching a page that can't be read any more (the file was cut short, the disk failed) raises SIGBUS, which would end
// the process, a host's too. The first mapping installs a handler that puts zeros in the page's place, so that the work
// under way comes to its next look at lost(). Signals elsewhere go to the handler that was there before.
class Mapping {
 public:
  Mapping() = default;
  // writable: changed pages are copied, the file never changes. Throws std::system_error with errno.
  Mapping(int descriptor, size_t bytes, bool writable);
  ~Mapping();
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;

  unsigned char* data() const { return data_; }
  // Whether zeros stand where the file could not be read.
  bool lost() const;

 private:
  unsigned char* data_ = nullptr;
  size_t bytes_ = 0;
  int slot_ = -1;
};

}  // namespace phonograd
