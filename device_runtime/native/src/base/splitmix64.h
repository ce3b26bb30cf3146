// Steele, Lea and Flood's generator SplitMix64: 64 bits of state, the same numbers in every language.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace phonograd {

constexpr uint64_t kSplitMixStep = 0x9E3779B97F4A7C15u;  // from one state to the next

// The output of a state.
inline uint64_t split_mixed(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}

  uint64_t next() { return split_mixed(state_ += kSplitMixStep); }
  // A number in [0, bound): the high word of next() * bound.
  uint64_t below(uint64_t bound) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<uint64_t>((static_cast<Wide>(next()) * bound) >> 64);
  }
  // Fisher and Yates's shuffle, in place, from the last place down.
  template <typename Item>
  void shuffle(std::vector<Item>& items) {
    for (size_t last = items.size(); last-- > 1;) std::swap(items[last], items[below(last + 1)]);
  }

 private:
  uint64_t state_;
};

}  // namespace phonograd
