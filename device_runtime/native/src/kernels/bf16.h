// Products whose operands are rounded to bf16 and whose sums are floats: twice the arithmetic of fp32 where the CPU has
// instructions for it. Two bf16 that are next to each other along the depth make a 32-bit pair, the earlier one in its
// lower half; where the depth ends, zeros fill up the last pairs.
//
// Functions of one thread, as those of KernelSet. AVX512-BF16, AMX and Arm's BFMMLA and BFMOPA take subnormal numbers
// as zero.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernel_set.h"

namespace phonograd {

// Pairs that hold a depth of so many numbers, filled up to a multiple of `filled`.
constexpr int64_t pairs_of(int64_t numbers, int filled) {
  return (numbers + filled - 1) / filled * (filled / 2);
}

struct Bf16Kernels {
  const char*
      name;    // "amx-bf16", "avx512-bf16", "bfmmla", "bfmopa", or "emulated": rounded the same, multiplied in floats
  int panel;   // that of the set it goes with
  int depth;   // an element's bf16 along the depth: 2, a pair, or 4, two
  int filled;  // the depth is filled up to a multiple of it, of whole elements
  bool subnormals;  // they are kept; else packed as the zeros that the instructions take them for

  int64_t pairs_of(int64_t numbers) const { return phonograd::pairs_of(numbers, filled); }

  // A [rows, depth], one of its strides 1, as pairs in the order in which multiply() is fastest, and their strides for
  // it; `pairs` has room for the set's whole tiles.
  Strides (*to_pairs)(const float* A, ptrdiff_t a_row, ptrdiff_t a_column, int rows, int depth, uint32_t* pairs);
  // Like KernelSet::pack, with elements in place of floats: [ceil(columns / panel)][pairs_of(depth) in
  // elements][panel].
  void (*pack)(const float* B, ptrdiff_t row_stride, ptrdiff_t column_stride, int depth, int columns, uint32_t* packed);
  // Like KernelSet::multiply, over `pairs` pairs, a whole number of elements; A's strides are what to_pairs() returned.
  void (*multiply)(int M, int N, int pairs, const uint32_t* A, ptrdiff_t a_row, ptrdiff_t a_column,
                   const uint32_t* packed, float* C, ptrdiff_t ldc, float alpha, float beta);
};

// The kernels for `set` that use this CPU's bf16 instructions; nullptr if the CPU or the set has none.
const Bf16Kernels* bf16_instructions(const KernelSet& set);
// The same, or those that round the same in fp32 arithmetic. Throws Error(unsupported) if not emulated and this CPU, or
// the set, has none.
const Bf16Kernels& bf16_kernels(const KernelSet& set, bool emulated);

}  // namespace phonograd
