// bf16 products by the instructions of Arm's BF16 extension; empty where the compiler's target is another CPU.
#if defined(__aarch64__)

#include <arm_neon.h>

#include <algorithm>
#include <cstring>

#include "kernels/bf16.h"

// The tiles of the set that these kernels go with (kernels_neon.cpp).
#define PHONOGRAD_SET neon_bf16
#define BF16_NAME "bfdot"
#define LANES 4
#define ROWS 8
#define VECTORS 3
#define KERNEL_LAMBDA __attribute__((target("bf16")))
#define PAIR_PRODUCTS(sum, a, b) (Vector) vbfdotq_f32((float32x4_t)(sum), (bfloat16x8_t)(a), (bfloat16x8_t)(b))

#pragma clang attribute push(__attribute__((target("bf16"))), apply_to = function)
#include "kernels/bf16_set.inc"
#pragma clang attribute pop

#endif
