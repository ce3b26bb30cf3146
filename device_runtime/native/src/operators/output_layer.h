// Output layer, softmax, cross-entropy and their gradients in two sweeps over blocks of the vocabulary. One [V, N]
// matrix (N = T * B tokens) is stored: it holds logits, their exponentials, and at last their gradients.
//
// The second sweep sums over the vocabulary: what the hidden states get, and D^T D for the norm. Blocks belong to a
// number of parts that no thread count changes (output_parts.h), and each part has sums of its own, added up in the
// end.
#pragma once

#include <optional>

#include "operators/distillation.h"
#include "operators/output_parts.h"

namespace phonograd {

struct OutputLayerTensors {
  Tensor* hidden;                           // [N, H]
  Tensor *weight, *bias;                    // [V, H], [V] or nullptr
  Tensor *low, *adapter;                    // [N, R], [V, R]; nullptr without an adapter
  Tensor *targets, *loss_gradient, *loss;   // [N], two single numbers; nullptr for soft targets alone
  Tensor *hidden_gradient, *bias_gradient;  // [N, H], [V]; nullptr where not wanted
  Tensor *low_gradient, *adapter_gradient;  // [N, R], [V, R]; nullptr where not wanted
  Tensor* logits;                           // [V, columns()]: kept until the update
  Tensor* gram;                             // [N, N], above the diagonal, kept; nullptr if not needed
  Tensor* packed_hidden;                    // packed_size(H, columns)
  Tensor *packed_low, *packed_tokens;       // with an adapter: packed_size(R, columns), packed_size(columns, R)
  Tensor* sums;                             // [blocks + 1, 2, columns]: highest logit, sum of exponentials
  Tensor* parts;                            // parts_floats(N, H, R)
  Tensor* per_token;                        // [3, columns]: the target's logit, log of the sum, scale
};

struct LossSettings {
  bool mean = false;
  int64_t ignored = -1;
};

class OutputLayerOperator : public Operator {
 public:
  static constexpr int64_t kParts = OutputParts::kParts;

  // Columns in memory of matrices that only this operator and the update know: whole vectors.
  static int64_t columns(int64_t N) { return (N + 15) / 16 * 16; }
  static int64_t block_rows(int64_t V);
  static int64_t sums_floats(int64_t V, int64_t N, int64_t sums = 2);
  static int64_t parts_floats(int64_t N, int64_t H, int64_t R) { return kParts * part_floats(N, H, R); }

  // soft_targets: nullptr for a loss that is cross-entropy alone.
  OutputLayerOperator(const OutputLayerTensors& tensors, LossSettings settings,
                      const DistillationTensors* soft_targets = nullptr);
  void run(Run& run) override;
  const char* phase() const override { return "output layer"; }
  std::string description() const override;
  Factors factors(size_t index) const override;  // of the weight, whatever the index

 private:
  // A part's sums: dhidden [N, columns(H)], then gram [N, columns(N)], then dlow [N, columns(R)].
  static int64_t part_floats(int64_t N, int64_t H, int64_t R) { return N * (columns(H) + columns(N) + columns(R)); }
  int64_t target(int64_t n) const { return t_.targets == nullptr ? -1 : t_.targets->integers()[n]; }
  bool counts(int64_t n) const { return t_.targets != nullptr && target(n) != settings_.ignored; }
  void check_targets() const;
  void exponentials(Run& run);
  void exponentials_of_block(Run& run, int64_t block, int thread);
  void sums_and_loss(const KernelSet& kernels);
  void gradients(Run& run);
  void gradient_of_block(Run& run, int64_t block, int thread);
  void add_block(Run& run, int64_t block, const OutputParts::Piece& piece, bool first, int thread);
  void add_parts(Run& run);

  OutputLayerTensors t_;
  LossSettings settings_;
  int64_t N_, V_, H_, R_, columns_, rows_, blocks_;  // R_: 0 without an adapter; rows_ of a block
  std::optional<Distillation> distillation_;
};

}  // namespace phonograd
