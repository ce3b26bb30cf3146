// The kernels for AArch64, where every CPU has NEON.
#if defined(__aarch64__)

#include <arm_neon.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/secret.h"
#include "kernels/bf16.h"
#include "kernels/kernel_set.h"

#define PHONOGRAD_SET neon
#define SET_NAME "neon"
#define LANES 4
#define ROWS 8
#define VECTORS 3
#define ADD_PAIR_PRODUCTS(sum, a, x)                                                                                 \
  (Integers) vmlal_high_s16(vmlal_s16((int32x4_t)(sum), vget_low_s16((int16x8_t)(a)), vget_low_s16((int16x8_t)(x))), \
                            (int16x8_t)(a), (int16x8_t)(x))
#define KERNEL_LAMBDA

#include "kernels/kernels.inc"

#endif
