// Products by the outer products of Arm's SME; empty where the compiler's target is another CPU. All else is NEON's.
//
// FMOPA adds to a tile of ZA the products of a vector of A by one of B, in the order and with the rounding of NEON's
// sums, so that fp32 has NEON's bits. A cluster of cores has one unit for it: one thread at a time feeds it, and the
// others multiply the same packed operands by NEON meanwhile. bf16 by BFMOPA has no such twin: all threads feed it.
#if defined(__aarch64__)

#include <arm_sme.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "kernels/bf16.h"
#include "kernels/kernel_set.h"

#define PHONOGRAD_SET sme
#define SET_NAME "sme"
#define BF16_NAME "bfmopa"
#define LANES 4
#define ROWS 32
#define VECTORS 8
#define OWN_PRODUCTS
#define KERNEL_LAMBDA

namespace phonograd::PHONOGRAD_SET {
namespace {

#include "kernels/vectors.inc"
//
#include "kernels/tiles.inc"
//
#include "kernels/bf16.inc"
#include "kernels/gemm.inc"

static_assert(ROWS == kPanel, "A is packed as B is, transposed");

// C [rows, columns] = or += alpha A B, of one tile of A's rows [depth][ROWS] and one panel of B [depth][kPanel], of
// floats or pairs of bf16.
struct Block {
  int rows, columns, depth;
  const uint32_t *A, *B;
  float* C;
  ptrdiff_t ldc;
  float alpha, beta;
};

#pragma clang attribute push(__attribute__((target("sme,bf16"))), apply_to = function)

// Rows [r, r + lanes) and columns [c, c + lanes) of C, from a tile of ZA.
template <int tile>
KERNEL_INLINE void store_za(const Block& block, int r, int c) __arm_streaming __arm_inout("za") {
  const svbool_t columns = svwhilelt_b32(c, block.columns);
  const int end = std::min(block.rows, r + static_cast<int>(svcntw()));
  for (int row = r; row < end; ++row) {
    float* to = block.C + row * block.ldc + c;
    const svfloat32_t sum = svread_hor_za32_f32_m(svdup_f32(0), columns, tile, static_cast<uint32_t>(row - r));
    svst1_f32(columns, to,
              block.beta == 0 ? svmul_n_f32_x(columns, sum, block.alpha)
                              : svmla_n_f32_x(columns, svld1_f32(columns, to), sum, block.alpha));
  }
}

struct Floats {
  static KERNEL_INLINE svbool_t up_to(int first, int end) __arm_streaming { return svwhilelt_b32(first, end); }
  static KERNEL_INLINE svfloat32_t load(svbool_t lanes, const uint32_t* p) __arm_streaming {
    return svreinterpret_f32_u32(svld1_u32(lanes, p));
  }
  template <int tile>
  static KERNEL_INLINE void add(svbool_t rows, svbool_t columns, svfloat32_t a,
                                svfloat32_t b) __arm_streaming __arm_inout("za") {
    svmopa_za32_f32_m(tile, rows, columns, a, b);
  }
};

struct PairsOfBf16 {
  static KERNEL_INLINE svbool_t up_to(int first, int end) __arm_streaming { return svwhilelt_b16(2 * first, 2 * end); }
  static KERNEL_INLINE svbfloat16_t load(svbool_t lanes, const uint32_t* p) __arm_streaming {
    return svreinterpret_bf16_u16(svld1_u16(lanes, reinterpret_cast<const uint16_t*>(p)));
  }
  template <int tile>
  static KERNEL_INLINE void add(svbool_t rows, svbool_t columns, svbfloat16_t a,
                                svbfloat16_t b) __arm_streaming __arm_inout("za") {
    svmopa_za32_bf16_m(tile, rows, columns, a, b);
  }
};

// ZA's four tiles: two vectors of rows by two of columns, whatever their length.
template <typename Element>
void multiply_block(const Block* block) __arm_streaming __arm_inout("za") {
  const int lanes = static_cast<int>(svcntw());
  for (int r = 0; r < block->rows; r += 2 * lanes) {
    const svbool_t upper = Element::up_to(r, block->rows), lower = Element::up_to(r + lanes, block->rows);
    for (int c = 0; c < block->columns; c += 2 * lanes) {
      const svbool_t left = Element::up_to(c, block->columns), right = Element::up_to(c + lanes, block->columns);
      const uint32_t *A = block->A + r, *B = block->B + c;
      svzero_za();
      for (int k = 0; k < block->depth; ++k, A += ROWS, B += kPanel) {
        const auto a = Element::load(upper, A), a_below = Element::load(lower, A + lanes);
        const auto b = Element::load(left, B), b_beside = Element::load(right, B + lanes);
        Element::template add<0>(upper, left, a, b);
        Element::template add<1>(upper, right, a, b_beside);
        Element::template add<2>(lower, left, a_below, b);
        Element::template add<3>(lower, right, a_below, b_beside);
      }
      store_za<0>(*block, r, c);
      store_za<1>(*block, r, c + lanes);
      store_za<2>(*block, r + lanes, c);
      store_za<3>(*block, r + lanes, c + lanes);
    }
  }
}

// Calls work(block) in streaming mode, by hand: compilers have it call functions of a runtime that zig lacks. First ZA
// is saved if a caller left it to be saved (TPIDR2, Arm's AAPCS64), as whoever uses ZA must.
KERNEL_INLINE void stream(void (*work)(const Block*), const Block& block) {
  __asm__ volatile(
      "mrs x9, TPIDR2_EL0\n"
      "cbz x9, 3f\n"
      "ldr x10, [x9]\n"
      "ldrh w11, [x9, #8]\n"
      "mov w12, wzr\n"
      "1: cmp w12, w11\n"
      "b.ge 2f\n"
      "str za[w12, 0], [x10]\n"
      "addsvl x10, x10, #1\n"
      "add w12, w12, #1\n"
      "b 1b\n"
      "2: msr TPIDR2_EL0, xzr\n"
      "3: mov x0, %[block]\n"
      "smstart\n"
      "blr %[work]\n"
      "smstop\n"
      :
      : [work] "r"(work), [block] "r"(&block)
      : "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16",
        "x17", "x30", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14",
        "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30",
        "v31", "memory", "cc");
}

void stream_floats(const Block& block) {
  stream(reinterpret_cast<void (*)(const Block*)>(multiply_block<Floats>), block);
}

void stream_pairs(const Block& block) {
  stream(reinterpret_cast<void (*)(const Block*)>(multiply_block<PairsOfBf16>), block);
}

#pragma clang attribute pop

// The same by NEON, in tiles that its registers hold.
template <typename Operand>
void multiply_by_neon(const Block& block) {
  constexpr int kRows = 8, kVectors = 3, kColumns = kVectors * LANES;
  for (int c = 0; c < block.columns; c += kColumns) {
    const int columns = std::min({kColumns, kPanel - c, block.columns - c});
    for (int r = 0; r < block.rows; r += kRows) {
      const auto *A = reinterpret_cast<const typename Operand::Scalar*>(block.A) + r,
                 *B = reinterpret_cast<const typename Operand::Scalar*>(block.B) + c;
      float* C = block.C + r * block.ldc + c;
      const int rows = std::min(kRows, block.rows - r);
      const Layout by{0, 0, block.ldc};
      if (kPanel - c >= kColumns) {
        tile_of<Operand, kRows, kVectors>(rows, block.depth, A, B, C, by, columns, block.alpha, block.beta);
      } else {
        tile_of<Operand, kRows, kVectors - 1>(rows, block.depth, A, B, C, by, columns, block.alpha, block.beta);
      }
    }
  }
}

void multiply_floats(const Block& block) {
  static std::atomic_flag fed = ATOMIC_FLAG_INIT;
  if (fed.test_and_set(std::memory_order_acquire)) return multiply_by_neon<Singles>(block);
  stream_floats(block);
  fed.clear(std::memory_order_release);
}

template <void (*multiply_one)(const Block&), typename Scalar>
void multiply_blocks(int M, int N, int depth, const Scalar* A, ptrdiff_t a_row, ptrdiff_t, const Scalar* packed,
                     float* C, ptrdiff_t ldc, float alpha, float beta) {
  for (int n = 0; n < N; n += kPanel, packed += static_cast<ptrdiff_t>(depth) * kPanel) {
    for (int m = 0; m < M; m += ROWS) {
      multiply_one({std::min(ROWS, M - m), std::min(kPanel, N - n), depth,
                    reinterpret_cast<const uint32_t*>(A + m * a_row), reinterpret_cast<const uint32_t*>(packed),
                    C + m * ldc + n, ldc, alpha, beta});
    }
  }
}

void pack_rows(const float* A, ptrdiff_t a_row, ptrdiff_t a_column, int rows, int depth, float* packed) {
  pack(A, a_column, a_row, depth, rows, packed);
}

Strides to_pairs(const float* A, ptrdiff_t a_row, ptrdiff_t a_column, int rows, int depth, uint32_t* pairs) {
  pack_pairs(A, a_column, a_row, depth, rows, pairs);
  return {pairs_of(depth, kFilled), 0};
}

}  // namespace

KernelSet with_outer_products(KernelSet own) {
  own.name = SET_NAME;
  own.panel = kPanel;
  own.rows = ROWS;
  own.reads_rows = false;
  own.pack = pack;
  own.pack_rows = pack_rows;
  own.multiply = multiply_blocks<multiply_floats>;
  return own;
}

extern const Bf16Kernels kernels, emulated;
const Bf16Kernels kernels = {BF16_NAME, kPanel, 2, kFilled, true, to_pairs, pack_pairs, multiply_blocks<stream_pairs>};
const Bf16Kernels emulated = {"emulated", kPanel,   2,          kFilled,
                              true,       to_pairs, pack_pairs, multiply_blocks<multiply_by_neon<Pairs>>};

}  // namespace phonograd::PHONOGRAD_SET

#endif
