#include "update/random_words.h"

#include "base/crc32.h"

namespace phonograd {

uint64_t stream_of(uint64_t seed, const std::string& name) {
  const uint64_t of_name = crc32(0, name.data(), name.size());
  return random_word(seed ^ (of_name << 32), 0);
}

}  // namespace phonograd
