// bf16 products by the tiles of AMX-BF16; empty where the compiler's target is another CPU.
//
// tests/native/amx_model.cpp has a model of the instructions, so that every CPU can test them.
#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "kernels/bf16.h"

// The panels of the set that these kernels go with (kernels_avx512.cpp).
#define PHONOGRAD_SET amx_bf16
#define BF16_NAME "amx-bf16"
#define KERNEL_LAMBDA __attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,avx512bf16,amx-tile,amx-bf16")))
#define PAIRS_OF_TILE 16

#pragma clang attribute push( \
    __attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,avx512bf16,amx-tile,amx-bf16"))), apply_to = function)

#include "kernels/avx512.inc"

namespace phonograd::PHONOGRAD_SET {
namespace {

#include "kernels/vectors.inc"
//
#include "kernels/avx512_pairs.inc"
//
#include "kernels/bf16.inc"
//
#include "kernels/amx.inc"

}  // namespace

extern const Bf16Kernels kernels;
const Bf16Kernels kernels = {BF16_NAME, kPanel, 2, kFilled, false, to_pairs, pack_pairs, multiply_tiles};

}  // namespace phonograd::PHONOGRAD_SET

#pragma clang attribute pop

#endif
