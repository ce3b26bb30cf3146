// full-f32: every trained weight, as paper P sends them.
#include "update/codec.h"

namespace phonograd {
namespace {

void encode(const TensorFile&, const TensorSpec& base, const float* trained, uint64_t, EncodedParts& parts) {
  parts.tensors.push_back({base.name, base.dtype, base.shape, trained});
}

}  // namespace

const Codec kFullF32{"full-f32", encode};

}  // namespace phonograd
