#include "operators/distillation.h"

#include <algorithm>
#include <limits>

namespace phonograd {

Distillation::Distillation(const DistillationTensors& tensors, int64_t rows, int64_t columns)
    : t_(tensors),
      N_(tensors.given != nullptr ? tensors.given->shape[0] : tensors.hidden->shape[0]),
      V_(tensors.given != nullptr ? tensors.given->shape[1] : tensors.weight->shape[0]),
      H_(tensors.given != nullptr ? 0 : tensors.weight->shape[1]),
      rows_(rows),
      columns_(columns) {}

void Distillation::pack(Run& run) {
  if (t_.given != nullptr) return;
  run.products.pack(H_, N_, transpose(row_major(t_.hidden->floats(), H_)), t_.packed_hidden->floats());
  if (t_.low == nullptr) return;
  const int64_t R = t_.low->shape[1];
  run.products.pack(R, N_, transpose(row_major(t_.low->floats(), R)), t_.packed_low->floats());
}

void Distillation::add_block(Run& run, int64_t block, const float* student, const float* student_bias, int thread) {
  if (t_.given != nullptr) {
    add_given(block);
  } else {
    add_teacher(run, block, thread);
  }
  run.kernels.column_dots(static_cast<int>(rows_of(block)), static_cast<int>(columns_), student_bias, student, columns_,
                          t_.logits->floats() + block * rows_ * columns_, columns_, sums_of(block) + 2 * columns_);
}

void Distillation::add_teacher(Run& run, int64_t block, int thread) {
  const int64_t v = block * rows_, rows = rows_of(block);
  float* logits = t_.logits->floats() + v * columns_;
  for (int64_t r = 0; r < rows; ++r) std::fill_n(logits + r * columns_ + N_, columns_ - N_, 0.0f);
  run.products.multiply_packed(rows, N_, H_, row_major(t_.weight->floats() + v * H_, H_), t_.packed_hidden->floats(),
                               logits, columns_, 1, 0, thread);
  if (t_.low != nullptr) {
    const int64_t R = t_.low->shape[1];
    run.products.multiply_packed(rows, N_, R, row_major(t_.adapter->floats() + v * R, R), t_.packed_low->floats(),
                                 logits, columns_, 1, 1, thread);
  }
  float* highest = sums_of(block);
  run.kernels.column_exponentials(static_cast<int>(rows), static_cast<int>(columns_),
                                  t_.bias == nullptr ? nullptr : t_.bias->floats() + v, logits, columns_, highest,
                                  highest + columns_);
}

// Leaves what add_teacher() would: exponentials of a highest logit of 0.
void Distillation::add_given(int64_t block) {
  constexpr int64_t kStrip = 16;  // tokens: what a row gets of them is one cache line
  const int64_t v = block * rows_, rows = rows_of(block);
  float* p = t_.logits->floats() + v * columns_;
  float *highest = sums_of(block), *sum = highest + columns_;
  std::fill_n(highest, 2 * columns_, 0.0f);
  for (int64_t first = 0; first < columns_; first += kStrip) {
    const int64_t tokens = std::clamp(N_ - first, int64_t{0}, kStrip);
    for (int64_t r = 0; r < rows; ++r) {
      float* row = p + r * columns_ + first;
      for (int64_t n = 0; n < tokens; ++n) row[n] = t_.given->floats()[(first + n) * V_ + v + r];
      std::fill_n(row + tokens, kStrip - tokens, 0.0f);
      for (int64_t n = 0; n < kStrip; ++n) sum[first + n] += row[n];
    }
  }
}

// Replaces each block's maxima by the factors that make its exponentials probabilities.
void Distillation::finish_sums(const KernelSet& kernels, const float* log_sum) {
  const int64_t blocks = divided_up(V_, rows_);
  float *highest = totals(), *sum = highest + columns_;
  std::fill_n(highest, columns_, std::numeric_limits<float>::lowest());
  std::fill_n(sum, columns_, 0.0f);
  for (int64_t block = 0; block < blocks; ++block) {
    kernels.merge_log_sum(static_cast<int>(columns_), highest, sum, sums_of(block), sums_of(block) + columns_);
  }
  // Sum of p log q = sum of p logit - log_sum times the sum of p, which is 1 with a teacher.
  const bool given = t_.given != nullptr;
  for (int64_t n = 0; n < N_; ++n) t_.log_likelihoods->floats()[n] = given ? -log_sum[n] * sum[n] : -log_sum[n];
  for (int64_t block = 0; block < blocks; ++block) {
    float *scale = sums_of(block), *dots = scale + 2 * columns_;
    for (int64_t n = 0; n < columns_; ++n) scale[n] -= highest[n];
    kernels.exponential(scale, scale, static_cast<size_t>(columns_));
    for (int64_t n = 0; n < columns_; ++n) scale[n] = given ? 1 : scale[n] / sum[n];
    for (int64_t n = 0; n < N_; ++n) t_.log_likelihoods->floats()[n] += dots[n] * scale[n];
  }
}

float Distillation::gradient(int64_t n) const {
  const float gradient = t_.gradient->floats()[n];
  return t_.given == nullptr ? gradient : gradient * totals()[columns_ + n];
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
