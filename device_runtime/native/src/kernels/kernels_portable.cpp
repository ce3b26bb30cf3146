// The kernels for whatever CPU the compiler's target is, without its extensions.
#ifdef __SSE2__
#include <emmintrin.h>
#define ADD_PAIR_PRODUCTS(sum, a, x) ((sum) + (Integers)_mm_madd_epi16((__m128i)(a), (__m128i)(x)))
#endif

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/secret.h"
#include "kernels/bf16.h"
#include "kernels/kernel_set.h"

#define PHONOGRAD_SET portable
#define SET_NAME "portable"
#define LANES 4
#define ROWS 4
#define VECTORS 2
#define KERNEL_LAMBDA

// So that its results are the same on every CPU: AArch64 has fused products even without extensions.
#pragma clang fp contract(off)

#include "kernels/kernels.inc"
