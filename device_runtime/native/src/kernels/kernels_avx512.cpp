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
#define KERNEL_LAMBDA __attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")))

#pragma clang attribute push(__attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,avx2,fma"))), \
                             apply_to = function)
#include "kernels/avx512.inc"
//
#include "kernels/kernels.inc"
#pragma clang attribute pop

#endif
