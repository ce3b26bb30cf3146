// pg_rotate: the rotations of updates, for servers that decode many.
#include "update/rotation.h"

#include <string>

#include "capi/border.h"
#include "phonograd.h"

using namespace phonograd;

extern "C" pg_status pg_rotate(float* x, int64_t blocks, int64_t size, int64_t start, const uint64_t* streams,
                               int32_t rotations, int32_t back) {
  return border::guarded([&] {
    border::require(x != nullptr && (streams != nullptr || rotations == 0), "x or streams: NULL");
    const bool power = size >= int64_t{kWord} && size <= int64_t{kBlock} && (size & (size - 1)) == 0;
    border::require(power, "size: " + std::to_string(size) + "; expected a power of two from 64 to 4096");
    border::require(blocks >= 0 && rotations >= 0 && start >= 0 && start % int64_t{kWord} == 0,
                    "blocks, rotations or start: below 0, or start no multiple of 64");
    const auto elements = static_cast<size_t>(size), count = static_cast<size_t>(rotations);
    for (int64_t block = 0; block < blocks; ++block) {
      const auto place = static_cast<size_t>(start + block * size);
      (back != 0 ? rotate_back : rotate)(x + block * size, elements, place, streams, count);
    }
  });
}
