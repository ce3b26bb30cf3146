#include "base/memory.h"

#include <sys/mman.h>

#include <string>
#include <utility>

#include "base/error.h"

namespace phonograd {

Memory::Memory(size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw Error(Status::out_of_memory,
                "out of memory: " + std::to_string(bytes) + " bytes needed; close other apps or use a smaller model");
  }
  data_ = static_cast<unsigned char*>(memory);
}

Memory::~Memory() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace phonograd
