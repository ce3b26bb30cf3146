// LwF's soft targets in the output layer (paper P, eq. 2): the probabilities p that a frozen teacher gives the words.
// Its logits are computed beside the student's, block by block of the vocabulary, and one [V, N] matrix keeps their
// exponentials for the second sweep.
#pragma once

#include "operators/operator.h"

namespace phonograd {

struct DistillationTensors {
  Tensor* hidden;           // [N, H], the teacher's, as all of these
  Tensor *weight, *bias;    // [V, H], [V] or nullptr
  Tensor* log_likelihoods;  // [N]: sum over the words of p log q, where q is the student's; what this computes
  Tensor* gradient;         // [N]: of these
  Tensor* logits;           // [V, columns]: logits, then their exponentials
  Tensor* packed_hidden;    // packed_size(H, columns)
  Tensor* sums;  // [blocks + 1, 3, columns]: highest logit, sum of exponentials, these times student's logits
};

// Part of an OutputLayerOperator, which calls this in its order; same threads, blocks and columns.
class Distillation {
 public:
  static constexpr int64_t kSums = 3;

  // rows: of a block.
  Distillation(const DistillationTensors& tensors, int64_t rows, int64_t columns);

  void pack(Run& run);
  // First sweep, before the student's logits [rows of the block, columns], which lack their bias, become exponentials.
  void add_block(Run& run, int64_t block, const float* student, const float* student_bias, int thread);
  // Between the sweeps. log_sum [N]: of the student.
  void finish_sums(const KernelSet& kernels, const float* log_sum);
  // Second sweep: D [rows, columns] and its sums by row gain what p is to the gradient. Of the student's q there is
  // minus the same gradient, which the caller has in D.
  void add_gradient(Run& run, int64_t block, float* D, float* row_sums);
  // [N]
  const float* gradient() const { return t_.gradient->floats(); }

 private:
  int64_t rows_of(int64_t block) const { return std::min(rows_, V_ - block * rows_); }
  float* sums_of(int64_t block) { return t_.sums->floats() + (block + 1) * kSums * columns_; }

  DistillationTensors t_;
  int64_t N_, V_, H_, rows_, columns_;
};

}  // namespace phonograd
