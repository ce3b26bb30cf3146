// What the LSTM and GRU operators share. Inside an operator gates and cells lie unit by unit, tokens contiguous:
// G [gates * H, N], C [H, N] with N = T * B and token t * B + b; hidden states lie as ONNX has them, Y [T, 1, B, H].
#pragma once

#include "operators/step_product.h"

namespace phonograd {

struct RecurrentShape {
  int64_t T, B, E, H;
  int64_t N() const { return T * B; }
};

inline RecurrentShape recurrent_shape(const Tensor& x, const Tensor& r) {
  return {x.shape[0], x.shape[1], x.shape[2], r.shape[2]};
}

// Checks X [T,B,E], W [1,gates*H,E], R [1,gates*H,H], B [1,2*gates*H] (at `bias`, may be left out), the initial states
// [1,B,H] from input `first_state` on, and the attributes hidden_size, direction.
RecurrentShape check_recurrent(const NodeChecker& node, int64_t gates, size_t bias, size_t first_state, size_t states);

// dX, dW, dR and dB of a gradient node.
void give_gradients(NodeChecker& node, int64_t gates, const RecurrentShape& s);

// G = W X^T + biases: the input side of all steps at once.
void input_gates(Run& run, const RecurrentShape& s, int64_t gates, const Tensor& x, const Tensor& w, const float* bias,
                 float* G);

// The hidden states before each token, [N, H]: h0, then Y without its last step.
void states_before(const RecurrentShape& s, const float* h0, const float* y, float* before);

// dX [N, E] = G^T W, and dense dW = G X, dR = G before where they are wanted.
void input_gradient(Run& run, const RecurrentShape& s, int64_t gates, const float* G, const Tensor& w, Tensor* dx);
// sums[m] = sum over n of G[m, n], G [rows, N].
void row_sums(Run& run, int64_t rows, int64_t N, const float* G, float* sums);
void weight_gradient(Run& run, int64_t rows, int64_t N, int64_t columns, const float* G, const float* x, Tensor* dw);

// dh [B, H] = D^T R of a time step, D [rows, B], R [rows, H] as `recurrent` has it packed; by all threads of a task,
// which wait for each other at its end.
void hidden_gradient(Run& run, int thread, const StepProduct& recurrent, const RecurrentShape& s, const float* d,
                     float* dh);

// A forward sweep packs R where its steps' products have bf16 operands and are enough to pay for it, as in training.
bool packs_recurrent(const NodeBuilder& node, const RecurrentShape& s);

// R^T of each gate, packed, for the products of a forward sweep's steps.
class PackedGates {
 public:
  PackedGates(NodeBuilder& node, int64_t gates, const RecurrentShape& s);
  void pack(Run& run, const float* r) const;  // R [gates * H, H]

  // In the pool's task, by all its threads, which wait for each other at its end: work(u, sums, of_gate) for every unit
  // u < H, where sums[gate * of_gate + b * stride] is gate's row u of R times h [B, H], as add() takes it.
  template <typename Work>
  void share(Run& run, int thread, Matrix h, Work&& work) const {
    const StepProduct::Factor factor = product_.factor(h, thread);
    const ptrdiff_t of_gate = s_.B * stride_;
    float* sums = sums_->floats() + thread * gates_ * of_gate;
    run.pool.share(thread, product_.panels(), [&](int64_t first, int64_t end) {
      for (int64_t panel = first; panel < end; ++panel) {
        for (int64_t gate = 0; gate < gates_; ++gate) {
          product_.multiply(factor, gate, panel, sums + gate * of_gate, stride_);
        }
        for (int64_t n = 0; n < product_.width(panel); ++n) work(product_.first_column(panel) + n, sums + n, of_gate);
      }
    });
  }

  // to[b] += the gate's sums, b < B.
  void add(const float* sums, float* to) const {
    for (int64_t b = 0; b < s_.B; ++b) to[b] += sums[b * stride_];
  }

 private:
  int64_t gates_;
  RecurrentShape s_;
  ptrdiff_t stride_;  // columns of a panel
  StepProduct product_;
  Tensor* sums_;  // [threads, gates, B, stride]
};

}  // namespace phonograd
