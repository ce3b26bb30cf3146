// Random bits of the codecs: SplitMix64, a stream for each tensor of an update. FORMAT.md, "Updates".
#pragma once

#include <cstdint>
#include <string>

namespace phonograd {

// What a tensor's stream starts from.
uint64_t stream_of(uint64_t seed, const std::string& name);

// Number `index`, from 0, of a stream.
inline uint64_t random_word(uint64_t stream, uint64_t index) {
  uint64_t z = stream + (index + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

}  // namespace phonograd
