// delta-f16 and delta-bf16: deltas in 16 bits, rounded to nearest; unchanged rows are left out.
#include <algorithm>
#include <cstring>

#include "update/deltas.h"
#include "update/sent_rows.h"
#include "update/update_reader.h"

namespace phonograd {
namespace {

uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

uint16_t f16_of(float value) {
  const float cut = std::min(std::max(value, -65504.0f), 65504.0f);
  const uint32_t sign = bits_of(cut) >> 16 & 0x8000, magnitude = bits_of(cut) & 0x7FFFFFFF;
  uint32_t half;
  if (magnitude < 0x38800000) {  // below 2^-14, F16 is a fixed point: a sum with 1/2 has its last bit where F16 has
    half = bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f);
  } else {  // to nearest, ties to even; the exponent's bias goes from 127 to 15
    half = (magnitude - (112u << 23) + 0xFFF + (magnitude >> 13 & 1)) >> 13;
  }
  return static_cast<uint16_t>(sign | half);
}

float of_f16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16, magnitude = half & 0x7FFF;
  // Read as a float, the magnitude is 2^112 times too small; an exponent of all ones is infinity or NaN in both.
  const float value = float_of(magnitude << 13) * 0x1p112f;
  return float_of(sign | (magnitude < 0x7C00 ? bits_of(value) : magnitude << 13 | 0x7F800000));
}

float of_bf16(uint16_t upper) {
  return float_of(static_cast<uint32_t>(upper) << 16);
}

uint16_t bf16_of(float value) {
  const uint32_t bits = bits_of(value), upper = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  return static_cast<uint16_t>(std::min(upper & 0x7FFF, 0x7F7Fu) | (upper & 0x8000));
}

// The two formats: F16, and BF16 as the upper halves of floats.
struct F16 {
  static constexpr const char* kDtype = "F16";
  static constexpr auto rounded = f16_of;
  static constexpr auto widened = of_f16;
};

struct BF16 {
  static constexpr const char* kDtype = "U16";
  static constexpr auto rounded = bf16_of;
  static constexpr auto widened = of_bf16;
};

template <typename Format>
void encode(const TensorFile& file, const TensorSpec& base, const Trained& trained, uint64_t, EncodedParts& parts) {
  Deltas deltas(file, base, trained);
  const size_t width = deltas.width();
  std::vector<float> row(width);
  std::vector<uint32_t> sent;
  std::vector<uint16_t> values;
  for (size_t number = 0; number < deltas.rows(); ++number) {
    deltas.read(number * width, width, row.data());
    if (std::all_of(row.begin(), row.end(), [](float delta) { return delta == 0; })) continue;
    sent.push_back(static_cast<uint32_t>(number));
    for (const float delta : row) values.push_back(Format::rounded(delta));
  }
  if (sent.empty()) return;
  add_mask(base, deltas.rows(), sent, parts);
  const int64_t count = static_cast<int64_t>(sent.size());
  parts.add(base.name + ".values", Format::kDtype, {count, static_cast<int64_t>(width)}, std::move(values));
}

template <typename Format>
void expect(const UpdateReader& update, const TensorSpec& tensor, std::vector<TensorSpec>& parts) {
  const std::string values = tensor.name + ".values";
  if (update.file().find(values) == nullptr) return;
  const auto count = static_cast<int64_t>(sent_rows(update, tensor).size());
  expect_mask(update, tensor, parts);
  parts.push_back({values, Format::kDtype, {count, static_cast<int64_t>(row_elements(tensor))}});
}

template <typename Format>
SentValues sent_values(const UpdateReader& update, const TensorSpec& tensor) {
  SentValues sent;
  const TensorSpec* part = update.file().find(tensor.name + ".values");
  if (part == nullptr) return sent;
  sent.rows = sent_rows(update, tensor);
  sent.decode = [&file = update.file(), at = part->offset, halves = std::vector<uint16_t>()](size_t start, size_t count,
                                                                                             float* out) mutable {
    halves.resize(count);
    file.read(at + start * sizeof(uint16_t), count * sizeof(uint16_t), halves.data());
    for (size_t i = 0; i < count; ++i) out[i] = Format::widened(halves[i]);
    return true;
  };
  return sent;
}

}  // namespace

const Codec kDeltaF16{"delta-f16", encode<F16>, expect<F16>, sent_values<F16>};
const Codec kDeltaBF16{"delta-bf16", encode<BF16>, expect<BF16>, sent_values<BF16>};

}  // namespace phonograd
