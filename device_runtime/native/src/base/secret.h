// Memory that holds a secret, and how it is wiped.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace phonograd {

// Zeros that the compiler may not leave out, although nobody reads them.
inline void wipe(void* data, size_t bytes) {
  std::memset(data, 0, bytes);
  __asm__ volatile("" : : "r"(data) : "memory");
}

// N bytes that begin as zeros and are wiped when they go. Not copyable, so that no copy is made by accident; moving
// wipes what was moved from. One thread at a time.
template <size_t N>
class Secret {
 public:
  Secret() = default;
  ~Secret() { wipe(bytes_.data(), N); }
  Secret(const Secret&) = delete;
  Secret& operator=(const Secret&) = delete;
  Secret(Secret&& other) noexcept : bytes_(other.bytes_) { wipe(other.bytes_.data(), N); }
  Secret& operator=(Secret&& other) noexcept {
    if (this == &other) return *this;
    bytes_ = other.bytes_;
    wipe(other.bytes_.data(), N);
    return *this;
  }

  uint8_t* data() { return bytes_.data(); }
  const uint8_t* data() const { return bytes_.data(); }
  static constexpr size_t size() { return N; }

 private:
  std::array<uint8_t, N> bytes_{};
};

}  // namespace phonograd
