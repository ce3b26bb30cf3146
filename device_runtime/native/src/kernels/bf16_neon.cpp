// bf16 products by the instructions of Arm's BF16 extension; empty where the compiler's target is another CPU.
//
// BFMMLA multiplies two rows of A by two columns of B over a depth of four: twice the arithmetic of BFDOT, and by
// llvm-mca no slower on any core. No CPU has one without the other (FEAT_BF16). It adds two products as BFDOT does,
// then the other two, so that both would give the same bits.
#if defined(__aarch64__)

#include <arm_neon.h>

#include <algorithm>
#include <cstring>

#include "kernels/bf16.h"

// The tiles of the set that these kernels go with (kernels_neon.cpp).
#define PHONOGRAD_SET neon_bf16
#define BF16_NAME "bfmmla"
#define LANES 4
#define ROWS 8
#define VECTORS 3
#define KERNEL_LAMBDA __attribute__((target("bf16")))

#pragma clang attribute push(__attribute__((target("bf16"))), apply_to = function)

namespace phonograd::PHONOGRAD_SET {
namespace {

#include "kernels/vectors.inc"
//
#include "kernels/tiles.inc"

// Four bf16 that are next to each other along the depth: of two rows, or two columns, they fill a vector.
struct Quads {
  typedef uint64_t Scalar;
  static constexpr bool kReadsRows = false, kInBlocks = true;

  // A in tiles. A sum holds two rows by two columns until the depth is done; the second row of the last two may be
  // beyond R, and what it has sums to nothing that is kept.
  template <int R, int W>
  static KERNEL_INLINE void sum_over_depth(int depth, const Scalar* A, const Scalar* B, Vector (&sum)[R][W]) {
    constexpr int kRowPairs = (R + 1) / 2;
    float32x4_t block[kRowPairs][2 * W] = {};
#pragma clang loop unroll_count(1)
    for (int k = 0; k < depth; ++k, A += ROWS, B += kPanel) {
      bfloat16x8_t a[kRowPairs];
      for (int r = 0; r < kRowPairs; ++r) std::memcpy(&a[r], A + 2 * r, sizeof a[r]);
      for (int w = 0; w < 2 * W; ++w) {
        bfloat16x8_t b;
        std::memcpy(&b, B + 2 * w, sizeof b);
        for (int r = 0; r < kRowPairs; ++r) block[r][w] = vbfmmlaq_f32(block[r][w], a[r], b);
      }
    }
    for (int r = 0; r < R; ++r) {
      for (int w = 0; w < W; ++w) {
        const float64x2_t left = (float64x2_t)block[r / 2][2 * w], right = (float64x2_t)block[r / 2][2 * w + 1];
        sum[r][w] = (Vector)(r % 2 == 0 ? vzip1q_f64(left, right) : vzip2q_f64(left, right));
      }
    }
  }
};

KERNEL_INLINE uint64_t quad_of(Four x) {
  return vget_lane_u64((uint64x1_t)vcvt_bf16_f32((float32x4_t)x), 0);
}

// The first n of four numbers `stride` apart; the rest are zero.
KERNEL_INLINE uint64_t quad_at(const float* x, ptrdiff_t stride, int n) {
  Four four = {};
  for (int i = 0; i < std::min(n, 4); ++i) four[i] = x[i * stride];
  return quad_of(four);
}

// The quads along the depth of X [depth, width], whose element (k, n) is X[k * along + n * across], one of them 1:
// [quads][pitch], of which the first `width` are written.
void pack_quads(const float* X, ptrdiff_t along, ptrdiff_t across, int depth, int width, int pitch, uint64_t* packed) {
  for (int k = 0; k < depth; k += 4, packed += pitch) {
    const float* row = X + k * along;
    const int n4 = k + 4 <= depth ? width / 4 * 4 : 0;
    for (int n = 0; n < n4; n += 4) {
      Four from[4], to[4];
      for (int i = 0; i < 4; ++i) {
        std::memcpy(&from[i], row + n * across + i * (along == 1 ? across : along), sizeof from[i]);
      }
      transpose(from, to);
      for (int i = 0; i < 4; ++i) packed[n + i] = quad_of(along == 1 ? from[i] : to[i]);
    }
    for (int n = n4; n < width; ++n) packed[n] = quad_at(row + n * across, along, depth - k);
  }
}

Strides to_quads(const float* A, ptrdiff_t a_row, ptrdiff_t a_column, int rows, int depth, uint32_t* pairs) {
  const int quads = (depth + 3) / 4;
  for (int m = 0; m < rows; m += ROWS) {
    pack_quads(A + m * a_row, a_column, a_row, depth, std::min(ROWS, rows - m), ROWS,
               reinterpret_cast<uint64_t*>(pairs) + static_cast<ptrdiff_t>(m) * quads);
  }
  return {2 * quads, 0};
}

void pack(const float* B, ptrdiff_t row_stride, ptrdiff_t column_stride, int depth, int columns, uint32_t* packed) {
  const int quads = (depth + 3) / 4;
  uint64_t* panel = reinterpret_cast<uint64_t*>(packed);
  for (int first = 0; first < columns; first += kPanel, panel += static_cast<ptrdiff_t>(quads) * kPanel) {
    const int width = std::min(kPanel, columns - first);
    pack_quads(B + first * column_stride, row_stride, column_stride, depth, width, kPanel, panel);
    for (int k = 0; k < quads && width < kPanel; ++k)
      std::fill(panel + k * kPanel + width, panel + (k + 1) * kPanel, 0);
  }
}

void multiply(int M, int N, int pairs, const uint32_t* A, ptrdiff_t a_row, ptrdiff_t a_column, const uint32_t* packed,
              float* C, ptrdiff_t ldc, float alpha, float beta) {
  all_panels<Quads>(M, N, pairs / 2, reinterpret_cast<const uint64_t*>(A), reinterpret_cast<const uint64_t*>(packed), C,
                    {a_row / 2, a_column, ldc}, alpha, beta);
}

}  // namespace

extern const Bf16Kernels kernels;
const Bf16Kernels kernels = {BF16_NAME, kPanel, 4, 4, true, to_quads, pack, multiply};

}  // namespace phonograd::PHONOGRAD_SET

#pragma clang attribute pop

#endif
