// bf16 products by the instructions of AVX512-BF16; empty where the compiler's target is another CPU.
#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "kernels/bf16.h"

// The tiles of the set that these kernels go with (kernels_avx512.cpp).
#define PHONOGRAD_SET avx512_bf16
#define BF16_NAME "avx512-bf16"
#define KERNEL_LAMBDA __attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,avx512bf16,avx2,fma")))
#define PAIR_PRODUCTS(sum, a, b) (Vector) _mm512_dpbf16_ps((__m512)(sum), (__m512bh)(a), (__m512bh)(b))

#pragma clang attribute push(__attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,avx512bf16,avx2,fma"))), \
                             apply_to = function)

#include "kernels/avx512.inc"

namespace phonograd::PHONOGRAD_SET {
namespace {

#include "kernels/vectors.inc"
//
#include "kernels/tiles.inc"
//
#include "kernels/avx512_pairs.inc"
//
#include "kernels/bf16.inc"

}  // namespace

extern const Bf16Kernels kernels;
const Bf16Kernels kernels = {BF16_NAME, kPanel, 2, kFilled, false, to_pairs, pack_pairs, multiply_pairs};

}  // namespace phonograd::PHONOGRAD_SET

#pragma clang attribute pop

#endif
