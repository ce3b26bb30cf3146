#include "operators/output_layer.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace phonograd {

OutputLayerOperator::OutputLayerOperator(const OutputLayerTensors& tensors, LossSettings settings)
    : t_(tensors),
      settings_(settings),
      N_(tensors.hidden->shape[0]),
      V_(tensors.weight->shape[0]),
      H_(tensors.weight->shape[1]),
      columns_(columns(N_)) {}

std::string OutputLayerOperator::description() const {
  return "output layer, softmax, cross-entropy and gradients V=" + std::to_string(V_) + " H=" + std::to_string(H_) +
         " N=" + std::to_string(N_) + ", weight's gradient factored";
}

Factors OutputLayerOperator::factors(size_t) const {
  return {t_.logits, columns_, 1, t_.hidden, V_, N_, H_};
}

void OutputLayerOperator::run(Run& run) {
  check_targets();
  logits_and_sums(run);
  log_sums_and_loss(run.compute.kernels);
  logits_gradient(run);
  // dhidden [N, H] = dlogits [N, V] W [V, H]
  run.compute.gemm(N_, H_, V_, {t_.logits->floats(), 1, columns_}, row_major(t_.weight->floats(), H_),
                   t_.hidden_gradient->floats(), H_);
}

void OutputLayerOperator::check_targets() const {
  for (int64_t n = 0; n < N_; ++n) {
    const int64_t target = t_.targets->integers()[n];
    if (target != settings_.ignored && (target < 0 || target >= V_)) {
      throw Error(Status::training, "target " + std::to_string(target) + " at place " + std::to_string(n) +
                                        ": expected an id below " + std::to_string(V_) + ", or " +
                                        std::to_string(settings_.ignored) + " for none");
    }
  }
}

void OutputLayerOperator::logits_and_sums(Run& run) {
  Compute& compute = run.compute;
  // The tokens of a padded column are those of no token; pack() fills them with zeros.
  compute.pack(H_, N_, transposed(row_major(t_.hidden->floats(), H_)), t_.packed_hidden->floats());
  compute.pool.for_each((V_ + kRowBlock - 1) / kRowBlock, [&](int64_t block, int) {
    const int64_t v = block * kRowBlock, rows = std::min(kRowBlock, V_ - v);
    float* logits = t_.logits->floats() + v * columns_;
    for (int64_t r = 0; r < rows; ++r) {
      std::fill_n(logits + r * columns_, columns_, t_.bias == nullptr ? 0.0f : t_.bias->floats()[v + r]);
    }
    compute.multiply_packed(rows, N_, H_, row_major(t_.weight->floats() + v * H_, H_), t_.packed_hidden->floats(),
                            logits, columns_, 1, 1);
    // Blocks are the same whatever thread takes them, so the sums are too.
    float* highest = t_.partial->floats() + (block + 1) * 2 * columns_;
    float* sum = highest + columns_;
    std::fill_n(highest, columns_, std::numeric_limits<float>::lowest());
    std::fill_n(sum, columns_, 0.0f);
    compute.kernels.column_log_sum(static_cast<int>(rows), static_cast<int>(columns_), logits, columns_, highest, sum);
  });
}

void OutputLayerOperator::log_sums_and_loss(const KernelSet& kernels) {
  float *highest = t_.partial->floats(), *sum = highest + columns_;
  std::fill_n(highest, columns_, std::numeric_limits<float>::lowest());
  std::fill_n(sum, columns_, 0.0f);
  for (int64_t block = 1; block <= (V_ + kRowBlock - 1) / kRowBlock; ++block) {
    const float* other = t_.partial->floats() + block * 2 * columns_;
    kernels.merge_log_sum(static_cast<int>(columns_), highest, sum, other, other + columns_);
  }
  float *log_sum = t_.per_token->floats(), *scale = log_sum + columns_;
  double total = 0;
  int64_t counted = 0;
  for (int64_t n = 0; n < N_; ++n) {
    log_sum[n] = highest[n] + std::log(sum[n]);
    const int64_t target = t_.targets->integers()[n];
    if (target == settings_.ignored) continue;
    total += static_cast<double>(log_sum[n] - t_.logits->floats()[target * columns_ + n]);
    ++counted;
  }
  const float of_all = settings_.mean ? 1.0f / static_cast<float>(counted) : 1.0f;
  for (int64_t n = 0; n < columns_; ++n) {
    const bool counts = n < N_ && t_.targets->integers()[n] != settings_.ignored;
    scale[n] = counts ? *t_.loss_gradient->floats() * of_all : 0;
    if (n >= N_) log_sum[n] = std::numeric_limits<float>::max();  // exp of the padding is zero
  }
  *t_.loss->floats() = static_cast<float>(settings_.mean ? total / static_cast<double>(counted) : total);
}

void OutputLayerOperator::logits_gradient(Run& run) {
  const float *log_sum = t_.per_token->floats(), *scale = log_sum + columns_;
  run.compute.pool.for_each((V_ + kRowBlock - 1) / kRowBlock, [&](int64_t block, int) {
    const int64_t v = block * kRowBlock, rows = std::min(kRowBlock, V_ - v);
    float* logits = t_.logits->floats() + v * columns_;
    float sums[kRowBlock];
    run.compute.kernels.softmax_gradient(static_cast<int>(rows), static_cast<int>(columns_), logits, columns_, log_sum,
                                         scale, sums);
    for (int64_t n = 0; n < N_; ++n) {
      const int64_t target = t_.targets->integers()[n];
      if (target < v || target >= v + rows) continue;
      logits[(target - v) * columns_ + n] -= scale[n];
      sums[target - v] -= scale[n];
    }
    if (t_.bias_gradient != nullptr) std::copy_n(sums, rows, t_.bias_gradient->floats() + v);
  });
}

}  // namespace phonograd
