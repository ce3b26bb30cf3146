// NEON's products of int8 weights by SDOT (FEAT_DotProd, of cores since the Cortex-A55 and A75); empty where the
// compiler's target is another CPU. i8mm's SMMLA would take as many instructions: a row by two columns has no more to
// share.
#if defined(__aarch64__)

#include <arm_neon.h>

#include <algorithm>
#include <cstring>

#include "kernels/kernel_set.h"

#define LANES 4
#define VECTORS 3
#define INT8_PRODUCTS ProductsOfBytes

#pragma clang attribute push(__attribute__((target("dotprod"))), apply_to = function)

namespace phonograd::neon_dot {
namespace {

#include "kernels/vectors.inc"

// Both bytes of x are multiplied: x = 256 high + low, low from -128 to 127.
struct ProductsOfBytes {
  struct Numbers {
    int8x16_t high, low;
  };
  struct Sum {
    int32x4_t high, low;
  };
  static constexpr int kNumbers = 16;

  static KERNEL_INLINE Numbers load(const int16_t* x) {
    const int8x16_t first = vreinterpretq_s8_s16(vld1q_s16(x)), second = vreinterpretq_s8_s16(vld1q_s16(x + 8));
    const int8x16_t low = vuzp1q_s8(first, second);
    return {vsubq_s8(vuzp2q_s8(first, second), vshrq_n_s8(low, 7)), low};
  }
  static KERNEL_INLINE void add(Sum& sum, const int8_t* weights, const Numbers& x) {
    const int8x16_t a = vld1q_s8(weights);
    sum.high = vdotq_s32(sum.high, a, x.high);
    sum.low = vdotq_s32(sum.low, a, x.low);
  }
  static KERNEL_INLINE int32_t total(const Sum& sum) {
    return vaddvq_s32(vaddq_s32(vshlq_n_s32(sum.high, 8), sum.low));
  }
};

#include "kernels/integers.inc"

}  // namespace

KernelSet with_dot(KernelSet own) {
  own.multiply_int8 = multiply_int8;
  return own;
}

}  // namespace phonograd::neon_dot

#pragma clang attribute pop

#endif
