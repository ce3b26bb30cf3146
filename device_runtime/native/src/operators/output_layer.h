// Output layer, softmax, cross-entropy and their gradients in three sweeps over the vocabulary, none of which stores
// more than one [V, N] matrix (N = T * B tokens): it holds logits, then their gradients.
#pragma once

#include "operators/operator.h"

namespace phonograd {

struct OutputLayerTensors {
  Tensor* hidden;                                  // [N, H]
  Tensor *weight, *bias;                           // [V, H], [V] or nullptr
  Tensor *targets, *loss_gradient;                 // [N], a single number
  Tensor *loss, *hidden_gradient, *bias_gradient;  // a single number, [N, H], [V] or nullptr
  Tensor* logits;                                  // [V, columns()]: kept until the update
  Tensor* packed_hidden;                           // packed_size(H, columns)
  Tensor* partial;                                 // [row blocks + 1, 2, columns]: running sums of exponentials
  Tensor* per_token;                               // [2, columns]
};

struct LossSettings {
  bool mean = false;
  int64_t ignored = -1;
};

class OutputLayerOperator : public Operator {
 public:
  // Columns of the logits' memory for N tokens: whole vectors.
  static int64_t columns(int64_t N) { return (N + 15) / 16 * 16; }
  static int64_t partial_floats(int64_t V, int64_t N) { return ((V + kRowBlock - 1) / kRowBlock + 1) * 2 * columns(N); }

  OutputLayerOperator(const OutputLayerTensors& tensors, LossSettings settings);
  void run(Run& run) override;
  const char* phase() const override { return "output layer"; }
  std::string description() const override;
  Factors factors(size_t index) const override;  // of the weight, whatever the index

 private:
  void check_targets() const;
  void logits_and_sums(Run& run);
  void log_sums_and_loss(const KernelSet& kernels);
  void logits_gradient(Run& run);

  OutputLayerTensors t_;
  LossSettings settings_;
  int64_t N_, V_, H_, columns_;
};

}  // namespace phonograd
