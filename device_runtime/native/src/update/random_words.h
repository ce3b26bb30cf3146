// Random bits of the codecs: SplitMix64, a stream for each tensor of an update. FORMAT.md, "Updates".
#pragma once

#include <cstdint>
#include <string>

#include "base/crc32.h"
#include "base/splitmix64.h"

namespace phonograd {

// Number `index`, from 0, of a stream.
inline uint64_t random_word(uint64_t stream, uint64_t index) {
  return split_mixed(stream + (index + 1) * kSplitMixStep);
}

// What a tensor's stream starts from.
inline uint64_t stream_of(uint64_t seed, const std::string& name) {
  const uint64_t of_name = crc32(0, name.data(), name.size());
  return random_word(seed ^ (of_name << 32), 0);
}

}  // namespace phonograd
