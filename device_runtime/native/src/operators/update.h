// The end of a step: clip the gradient of all parameters together, and take it from them (SGD).
#pragma once

#include <vector>

#include "operators/operator.h"

namespace phonograd {

// A parameter and its gradient, in the form in which it was left: dense, or factors, or rows, or the sum of factors and
// rows (of a tied embedding). What is not there is nullptr. With factors, `dense` is memory for the whole gradient,
// which the update computes for its norm.
struct ParameterGradient {
  Tensor* parameter = nullptr;
  float* target = nullptr;  // what the update changes, of the parameter's shape; nullptr: the parameter
  Tensor* dense = nullptr;  // of the parameter's shape
  Factors factors;
  Tensor* ids = nullptr;   // the R rows of the parameter [V, E] that
  Tensor* rows = nullptr;  // these R gradients [R, E] belong to

  bool has_factors() const { return factors.d != nullptr; }
};

class Update : public Operator {
 public:
  // loss: where the loss is, nullptr if the graph has none; if it is not finite nothing is changed. clip_norm: 0 for no
  // clipping. scratch: scratch_floats(gradients).
  Update(std::vector<ParameterGradient> gradients, Tensor* loss, float clip_norm, Tensor* scratch);

  // Throws Error(training), before anything is changed, if the gradient's norm is not finite.
  void run(Run& run) override;
  const char* phase() const override { return "update"; }
  std::string description() const override;

  static int64_t scratch_floats(const std::vector<ParameterGradient>& gradients);

 private:
  double squared_norm(Run& run, const ParameterGradient& gradient);
  double dense_squared_norm(Run& run, const Tensor& gradient);
  double factored_squared_norm(Run& run, const Factors& factors);
  double squared_norm_of_rows(Run& run, const ParameterGradient& gradient);
  double rows_times_factors(Run& run, const ParameterGradient& gradient);
  void merge_rows(Run& run, ParameterGradient& gradient);
  // factor times factors' product and rows, added to what is there (beta 1); or in its place (0), if there are factors.
  void add_terms(Run& run, const ParameterGradient& gradient, float factor, float beta, float* to);
  void apply(Run& run, const ParameterGradient& gradient, float rate);
  size_t place_of(const ParameterGradient& gradient) const {
    return static_cast<size_t>(&gradient - gradients_.data());
  }

  std::vector<ParameterGradient> gradients_;
  std::vector<std::vector<int64_t>> touched_;  // by gradient: its rows in rising order, each once, after merge_rows()
  std::vector<size_t> touched_count_;
  std::vector<std::vector<int64_t>> order_;
  Tensor* loss_;
  float clip_norm_;
  Tensor* scratch_;
  Tensor* gram_of_ = nullptr;  // whose D D^T the scratch memory holds
};

}  // namespace phonograd
