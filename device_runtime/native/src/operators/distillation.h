// Soft targets p in the output layer. LwF's are the probabilities that a frozen teacher gives the words (paper P, eq.
// 2): its logits are computed beside the student's, block by block of the vocabulary, and one [V, N] matrix keeps their
// exponentials for the second sweep. Or p is given (eq. 4), and that matrix is p transposed.
#pragma once

#include "operators/operator.h"

namespace phonograd {

struct DistillationTensors {
  Tensor* given = nullptr;                    // p [N, V] of any sums, in place of a teacher; nullptr with one
  Tensor* hidden = nullptr;                   // [N, H], the teacher's, as the next two
  Tensor *weight = nullptr, *bias = nullptr;  // [V, H], [V] or nullptr
  Tensor *low = nullptr, *adapter = nullptr;  // [N, R], [V, R] or nullptr
  Tensor* log_likelihoods = nullptr;          // [N]: sum over the words of p log q, q the student's; the result
  Tensor* gradient = nullptr;                 // [N]: of these
  Tensor* logits = nullptr;                   // [V, columns]: logits, then their exponentials; or p
  Tensor* packed_hidden = nullptr;            // packed_size(H, columns), of the teacher
  Tensor* packed_low = nullptr;               // packed_size(R, columns)
  Tensor* sums = nullptr;  // [blocks + 1, 3, columns]: highest logit, sum of exponentials, these times student's logits
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
  // minus gradient(), which the caller has in D.
  void add_gradient(Run& run, int64_t block, float* D, float* row_sums);
  // The gradient for token n, times the sum of its p.
  float gradient(int64_t n) const;

 private:
  void add_teacher(Run& run, int64_t block, int thread);
  void add_given(int64_t block);
  int64_t rows_of(int64_t block) const { return std::min(rows_, V_ - block * rows_); }
  float* totals() const { return t_.sums->floats(); }
  float* sums_of(int64_t block) const { return totals() + (block + 1) * kSums * columns_; }

  DistillationTensors t_;
  int64_t N_, V_, H_, rows_, columns_;
};

}  // namespace phonograd
