// delta-f16 and delta-bf16: deltas in 16 bits, rounded to nearest; unchanged rows are left out.
#include <algorithm>
#include <cstring>

#include "update/codec.h"
#include "update/deltas.h"

namespace phonograd {
namespace {

uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

uint16_t f16_of(float value) {
  const float cut = std::min(std::max(value, -65504.0f), 65504.0f);
  const uint32_t sign = bits_of(cut) >> 16 & 0x8000, magnitude = bits_of(cut) & 0x7FFFFFFF;
  uint32_t half;
  if (magnitude < 0x38800000) {  // below 2^-14, F16 is a fixed point: a sum with 1/2 has its last bit where F16 has
    float shifted;
    std::memcpy(&shifted, &magnitude, sizeof shifted);
    shifted += 0.5f;
    half = bits_of(shifted) - bits_of(0.5f);
  } else {  // to nearest, ties to even; the exponent's bias goes from 127 to 15
    half = (magnitude - (112u << 23) + 0xFFF + (magnitude >> 13 & 1)) >> 13;
  }
  return static_cast<uint16_t>(sign | half);
}

uint16_t bf16_of(float value) {
  const uint32_t bits = bits_of(value), upper = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  return static_cast<uint16_t>(std::min(upper & 0x7FFF, 0x7F7Fu) | (upper & 0x8000));
}

template <uint16_t (*kRounded)(float)>
void encode(const TensorFile& file, const TensorSpec& base, const Trained& trained, const char* dtype,
            EncodedParts& parts) {
  Deltas deltas(file, base, trained);
  const size_t width = deltas.width();
  std::vector<float> row(width);
  std::vector<uint32_t> sent;
  std::vector<uint16_t> values;
  for (size_t number = 0; number < deltas.rows(); ++number) {
    deltas.read(number * width, width, row.data());
    if (std::all_of(row.begin(), row.end(), [](float delta) { return delta == 0; })) continue;
    sent.push_back(static_cast<uint32_t>(number));
    for (const float delta : row) values.push_back(kRounded(delta));
  }
  if (sent.empty()) return;
  add_mask(base, deltas.rows(), sent, parts);
  const int64_t count = static_cast<int64_t>(sent.size());
  parts.add(base.name + ".values", dtype, {count, static_cast<int64_t>(width)}, std::move(values));
}

void encode_f16(const TensorFile& file, const TensorSpec& base, const Trained& trained, uint64_t, EncodedParts& parts) {
  encode<f16_of>(file, base, trained, "F16", parts);
}

void encode_bf16(const TensorFile& file, const TensorSpec& base, const Trained& trained, uint64_t,
                 EncodedParts& parts) {
  encode<bf16_of>(file, base, trained, "U16", parts);
}

}  // namespace

const Codec kDeltaF16{"delta-f16", encode_f16};
const Codec kDeltaBF16{"delta-bf16", encode_bf16};

}  // namespace phonograd
