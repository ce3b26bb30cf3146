// delta-int8: deltas in 8 bits, stochastically rounded and so unbiased; unchanged rows are left out.
#include <algorithm>
#include <cmath>

#include "base/random_words.h"
#include "update/codec.h"
#include "update/deltas.h"

namespace phonograd {
namespace {

constexpr float kLargest = 127;
constexpr size_t kLanes = 4;  // 16-bit random numbers in a word

float uniform(uint64_t stream, size_t element) {
  const uint64_t lane = random_word(stream, element / kLanes) >> 16 * (element % kLanes) & 0xFFFF;
  return (static_cast<float>(lane) + 0.5f) * 0x1p-16f;
}

void encode(const TensorFile& file, const TensorSpec& base, const Trained& trained, uint64_t seed,
            EncodedParts& parts) {
  Deltas deltas(file, base, trained);
  const size_t width = deltas.width();
  const uint64_t stream = stream_of(seed, base.name);
  std::vector<float> row(width), scales;
  std::vector<uint32_t> sent;
  std::vector<int8_t> values;
  for (size_t number = 0; number < deltas.rows(); ++number) {
    deltas.read(number * width, width, row.data());
    float largest = 0;
    for (const float delta : row) largest = std::max(largest, std::fabs(delta));
    const float scale = largest / kLargest;
    if (scale == 0) continue;
    sent.push_back(static_cast<uint32_t>(number));
    scales.push_back(scale);
    for (const float delta : row) {
      const float scaled = delta / scale;
      const float rounded = std::floor(scaled + uniform(stream, values.size()));
      values.push_back(static_cast<int8_t>(std::min(std::max(rounded, -kLargest), kLargest)));
    }
  }
  if (sent.empty()) return;
  add_mask(base, deltas.rows(), sent, parts);
  const int64_t count = static_cast<int64_t>(sent.size());
  parts.add(base.name + ".scales", "F32", {count}, std::move(scales));
  parts.add(base.name + ".values", "I8", {count, static_cast<int64_t>(width)}, std::move(values));
}

}  // namespace

const Codec kDeltaInt8{"delta-int8", encode};

}  // namespace phonograd
