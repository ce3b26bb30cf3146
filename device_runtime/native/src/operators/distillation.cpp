#include "operators/distillation.h"

#include <algorithm>
#include <limits>

namespace phonograd {

Distillation::Distillation(const DistillationTensors& tensors, int64_t rows, int64_t columns)
    : t_(tensors),
      N_(tensors.hidden->shape[0]),
      V_(tensors.weight->shape[0]),
      H_(tensors.weight->shape[1]),
      rows_(rows),
      columns_(columns) {}

void Distillation::pack(Run& run) {
  run.products.pack(H_, N_, transposed(row_major(t_.hidden->floats(), H_)), t_.packed_hidden->floats());
}

void Distillation::add_block(Run& run, int64_t block, const float* student, const float* student_bias, int thread) {
  const int64_t v = block * rows_, rows = rows_of(block);
  const int block_rows = static_cast<int>(rows), columns = static_cast<int>(columns_);
  float* logits = t_.logits->floats() + v * columns_;
  for (int64_t r = 0; r < rows; ++r) std::fill_n(logits + r * columns_ + N_, columns_ - N_, 0.0f);
  run.products.multiply_packed(rows, N_, H_, row_major(t_.weight->floats() + v * H_, H_), t_.packed_hidden->floats(),
                               logits, columns_, 1, 0, thread);
  float *highest = sums_of(block), *sum = highest + columns_, *dots = sum + columns_;
  run.kernels.column_exponentials(block_rows, columns, t_.bias == nullptr ? nullptr : t_.bias->floats() + v, logits,
                                  columns_, highest, sum);
  run.kernels.column_dots(block_rows, columns, student_bias, student, columns_, logits, columns_, dots);
}

// Leaves in each block's place of maxima what makes its exponentials probabilities.
void Distillation::finish_sums(const KernelSet& kernels, const float* log_sum) {
  const int64_t blocks = divided_up(V_, rows_);
  float *highest = sums_of(-1), *sum = highest + columns_;
  std::fill_n(highest, columns_, std::numeric_limits<float>::lowest());
  std::fill_n(sum, columns_, 0.0f);
  for (int64_t block = 0; block < blocks; ++block) {
    kernels.merge_log_sum(static_cast<int>(columns_), highest, sum, sums_of(block), sums_of(block) + columns_);
  }
  // The probabilities' sum is 1, so sum of p log q = sum of p logit - log_sum.
  for (int64_t n = 0; n < N_; ++n) t_.log_likelihoods->floats()[n] = -log_sum[n];
  for (int64_t block = 0; block < blocks; ++block) {
    float *scale = sums_of(block), *dots = scale + 2 * columns_;
    for (int64_t n = 0; n < columns_; ++n) scale[n] -= highest[n];
    kernels.exponential(scale, scale, static_cast<size_t>(columns_));
    for (int64_t n = 0; n < columns_; ++n) scale[n] /= sum[n];
    for (int64_t n = 0; n < N_; ++n) t_.log_likelihoods->floats()[n] += dots[n] * scale[n];
  }
}

void Distillation::add_gradient(Run& run, int64_t block, float* D, float* row_sums) {
  const int64_t rows = rows_of(block);
  float* p = t_.logits->floats() + block * rows_ * columns_;
  float* scale = sums_of(block);
  for (int64_t n = 0; n < columns_; ++n) scale[n] = n < N_ ? scale[n] * t_.gradient->floats()[n] : 0;
  float sums[kMostDepth];
  run.kernels.scale_columns(static_cast<int>(rows), static_cast<int>(columns_), p, columns_, scale, sums);
  run.kernels.add_scaled(static_cast<size_t>(rows * columns_), 1, p, D);
  for (int64_t r = 0; r < rows; ++r) row_sums[r] += sums[r];
}

}  // namespace phonograd
