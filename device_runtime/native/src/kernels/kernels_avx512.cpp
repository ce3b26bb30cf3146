// The kernels for AVX512; empty where the compiler's target is not x86-64.
#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/secret.h"
#include "kernels/bf16.h"
#include "kernels/kernel_set.h"

#define PHONOGRAD_SET avx512
#define SET_NAME "avx512"
#define LANES 16
#define ROWS 8
#define VECTORS 3
#define LOAD_FIRST(p, n) (Vector) _mm512_maskz_loadu_ps(static_cast<__mmask16>(0xffff >> (16 - (n))), p)
#define STORE_FIRST(p, v, n) _mm512_mask_storeu_ps(p, static_cast<__mmask16>(0xffff >> (16 - (n))), (__m512)(v))
#define KERNEL_LAMBDA __attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")))

#pragma clang attribute push(__attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,avx2,fma"))), \
                             apply_to = function)
#include "kernels/kernels.inc"
#pragma clang attribute pop

#endif
