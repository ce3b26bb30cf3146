// bf16 products by the instructions of AVX512-BF16; empty where the compiler's target is another CPU.
#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "kernels/bf16.h"

// The tiles of the set that these kernels go with (kernels_avx512.cpp).
#define PHONOGRAD_SET avx512_bf16
#define BF16_NAME "avx512-bf16"
#define LANES 16
#define ROWS 8
#define VECTORS 3
#define LOAD_FIRST(p, n) (Vector) _mm512_maskz_loadu_ps(static_cast<__mmask16>(0xffff >> (16 - (n))), p)
#define STORE_FIRST(p, v, n) _mm512_mask_storeu_ps(p, static_cast<__mmask16>(0xffff >> (16 - (n))), (__m512)(v))
#define KERNEL_LAMBDA __attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,avx512bf16,avx2,fma")))
#define PAIRS_OF_NEIGHBOURS(v, next) (Words) _mm512_cvtne2ps_pbh((__m512)(next), (__m512)(v))
#define PAIRS_OF_ROWS(first, second) \
  (Words) _mm512_permutexvar_epi16(in_pairs(), (__m512i)_mm512_cvtne2ps_pbh((__m512)(second), (__m512)(first)))
#define PAIR_PRODUCTS(sum, a, b) (Vector) _mm512_dpbf16_ps((__m512)(sum), (__m512bh)(a), (__m512bh)(b))

#pragma clang attribute push(__attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,avx512bf16,avx2,fma"))), \
                             apply_to = function)

namespace phonograd::PHONOGRAD_SET {
namespace {

#include "kernels/vectors.inc"
//
#include "kernels/tiles.inc"
//
// Of two rows of 16 numbers, one after the other: each of the first beside that of the second.
KERNEL_INLINE __m512i in_pairs() {
  Words at = {};
  for (uint32_t i = 0; i < 16; ++i) at[i] = i | (i + 16) << 16;
  return (__m512i)at;
}

#include "kernels/bf16.inc"

}  // namespace

extern const Bf16Kernels kernels;
const Bf16Kernels kernels = {BF16_NAME, kPanel, 2, false, to_pairs, pack_pairs, multiply_pairs};

}  // namespace phonograd::PHONOGRAD_SET

#pragma clang attribute pop

#endif
