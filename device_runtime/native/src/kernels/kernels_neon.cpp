// The kernels for AArch64, where every CPU has NEON.
#if defined(__aarch64__)

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
#define KERNEL_LAMBDA

#include "kernels/kernels.inc"

#endif
