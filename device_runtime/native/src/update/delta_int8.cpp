// delta-int8: deltas in 8 bits, stochastically rounded and so unbiased; unchanged rows are left out.
#include <algorithm>
#include <cmath>

#include "base/random_words.h"
#include "update/deltas.h"
#include "update/sent_rows.h"
#include "update/update_reader.h"

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

void expect(const UpdateReader& update, const TensorSpec& tensor, std::vector<TensorSpec>& parts) {
  const std::string values = tensor.name + ".values";
  if (update.file().find(values) == nullptr) return;
  const auto count = static_cast<int64_t>(sent_rows(update, tensor).size());
  expect_mask(update, tensor, parts);
  parts.push_back({tensor.name + ".scales", "F32", {count}});
  parts.push_back({values, "I8", {count, static_cast<int64_t>(row_elements(tensor))}});
}

SentValues sent_values(const UpdateReader& update, const TensorSpec& tensor) {
  SentValues sent;
  const TensorSpec* part = update.file().find(tensor.name + ".values");
  if (part == nullptr) return sent;
  sent.rows = sent_rows(update, tensor);
  sent.unit = row_elements(tensor);
  sent.decode = [&update, name = tensor.name, width = sent.unit, at = part->offset, levels = std::vector<int8_t>(),
                 scales = std::vector<float>()](size_t start, size_t count, float* out) mutable {
    const size_t first = start / width;
    levels.resize(count);
    scales.resize((start + count + width - 1) / width - first);
    read_scales(update, name, first, scales.size(), scales.data());
    update.file().read(at + start, count, levels.data());
    for (size_t i = 0; i < count;) {
      const float scale = scales[(start + i) / width - first];
      for (const size_t end = std::min(count, i + width - (start + i) % width); i < end; ++i) {
        out[i] = static_cast<float>(levels[i]) * scale;
      }
    }
    return true;
  };
  return sent;
}

}  // namespace

const Codec kDeltaInt8{"delta-int8", encode, expect, sent_values};

}  // namespace phonograd
