// full-f32: every trained weight, as paper P sends them. rows-f32: the same without unchanged rows, where that is
// smaller. A row is the last dimension.
#include <cstring>
#include <utility>

#include "update/codec.h"
#include "update/deltas.h"

namespace phonograd {
namespace {

void encode_full(const TensorFile&, const TensorSpec& base, const Trained& trained, uint64_t, EncodedParts& parts) {
  parts.tensors.push_back({base.name, base.dtype, base.shape, trained.data});
}

void encode_rows(const TensorFile& file, const TensorSpec& base, const Trained& trained, uint64_t seed,
                 EncodedParts& parts) {
  const size_t width = row_elements(base), row_bytes = width * sizeof(float);
  // The fewest changed rows that take as many bytes as the whole: each comes with a row number of 4 bytes.
  const size_t cost = sizeof(uint32_t) + row_bytes, enough = (base.bytes + cost - 1) / cost;
  std::vector<uint32_t> moved = moved_rows(file, base, trained, enough);
  if (moved.size() >= enough) return encode_full(file, base, trained, seed, parts);

  std::vector<float> values(moved.size() * width);
  for (size_t i = 0; i < moved.size(); ++i) {
    std::memcpy(values.data() + i * width, trained.data + moved[i] * width, row_bytes);
  }
  const int64_t count = static_cast<int64_t>(moved.size());
  parts.add(base.name + ".rows", "U32", {count}, std::move(moved));
  parts.add(base.name + ".values", "F32", {count, static_cast<int64_t>(width)}, std::move(values));
}

}  // namespace

const Codec kFullF32{"full-f32", encode_full};
const Codec kRowsF32{"rows-f32", encode_rows};

}  // namespace phonograd
