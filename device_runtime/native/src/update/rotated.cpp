// rot-q4, rot-q2, rot-q1: every delta, rotated and quantised.
#include "update/codec.h"
#include "update/deltas.h"
#include "update/rotation.h"

namespace phonograd {
namespace {

template <int kBits>
void encode(const TensorFile& file, const TensorSpec& base, const float* trained, uint64_t seed, EncodedParts& parts) {
  Deltas deltas(file, base, trained);
  const auto read = [&](size_t start, size_t count, float* out) { deltas.read(start, count, out); };
  add_rotated(base.name, deltas.elements(), kBits, seed, read, parts);
}

}  // namespace

const Codec kRotQ4{"rot-q4", encode<4>};
const Codec kRotQ2{"rot-q2", encode<2>};
const Codec kRotQ1{"rot-q1", encode<1>};

}  // namespace phonograd
