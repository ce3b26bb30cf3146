// Random bits by name: SplitMix64, a stream for each name. FORMAT.md, "Updates", random numbers.
#pragma once

#include <cstdint>
#include <string>

#include "base/crc32.h"
#include "base/splitmix64.h"

namespace phonograd {

// Word `index`, from 0, of a stream.
inline uint64_t random_word(uint64_t stream, uint64_t index) {
  return split_mixed(stream + (index + 1) * kSplitMixStep);
}

// What the stream of a name starts from.
inline uint64_t stream_of(uint64_t seed, const std::string& name) {
  const uint64_t of_name = crc32(0, name.data(), name.size());
  return random_word(seed ^ (of_name << 32), 0);
}

// The upper 53 bits of a word as a number in [0, 1).
inline double uniform_of(uint64_t word) {
  return static_cast<double>(word >> 11) * 0x1p-53;
}

}  // namespace phonograd
