// The recurrent side of a sweep over time: at every step, [B, depth] times matrices that stay the same. These are
// packed once for all steps, in panels over their whole depth; a step's factor is packed or rounded where the kernels
// want that.
#pragma once

#include "operators/operator.h"

namespace phonograd {

class StepProduct {
 public:
  // `count` matrices [depth, columns] and B tokens a step; in scratch memory of `node`.
  StepProduct(NodeBuilder& node, int64_t count, int64_t B, int64_t depth, int64_t columns);

  // Matrix `index`, by all threads of the pool, which are idle.
  void pack(Run& run, int64_t index, Matrix matrix) const;

  // In the pool's task, for `thread`: A [B, depth] of a step, its rows contiguous, as multiply() takes it. It may lie
  // in memory of that thread, until the next call.
  struct Factor {
    const float* a;
    const uint32_t* pairs;  // nullptr: fp32
    Strides by;
  };
  Factor factor(const float* A, int thread) const;
  // C = A matrix[:, columns of the panel] + beta C, C [B, width(panel)] with rows ldc apart; beta is 0 or 1.
  void multiply(const Factor& A, int64_t index, int64_t panel, float* C, ptrdiff_t ldc, float beta) const;

  int64_t panels() const { return divided_up(columns_, kernels_.panel); }
  int64_t first_column(int64_t panel) const { return panel * kernels_.panel; }
  int64_t width(int64_t panel) const { return std::min<int64_t>(kernels_.panel, columns_ - first_column(panel)); }

 private:
  float* packed(int64_t index, int64_t panel) const;

  const KernelSet& kernels_;
  const Bf16Kernels* bf16_;
  int64_t B_, depth_, columns_;
  int64_t elements_;           // floats along a packed panel's depth; pairs of bf16 are as large
  int64_t factor_;             // floats or pairs of a step's factor in whole tiles; 0: it is read where it lies
  Tensor *packed_, *factors_;  // [count, panels, elements, panel]; [threads, factor_] or nullptr
};

}  // namespace phonograd
