// The kernels for AVX2; empty where the compiler's target is not x86-64.
#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/secret.h"
#include "kernels/bf16.h"
#include "kernels/kernel_set.h"

#define PHONOGRAD_SET avx2
#define SET_NAME "avx2"
#define LANES 8
#define ROWS 6
#define VECTORS 2
#define ADD_PAIR_PRODUCTS(sum, a, x) ((sum) + (Integers)_mm256_madd_epi16((__m256i)(a), (__m256i)(x)))
#define KERNEL_LAMBDA __attribute__((target("avx2,fma")))

#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#include "kernels/kernels.inc"
#pragma clang attribute pop

#endif
