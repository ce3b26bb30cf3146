#pragma once

#include <cstddef>

namespace phonograd {

// Anonymous zeroed memory, 64-byte aligned, given back by the destructor. Pages cost nothing until touched.
class Memory {
 public:
  explicit Memory(size_t bytes = 0);  // throws Error(out_of_memory) if the system has no more
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;

  unsigned char* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  unsigned char* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace phonograd
