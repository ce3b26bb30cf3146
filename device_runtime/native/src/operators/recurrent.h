// What the LSTM and GRU operators share. All that they hold lies token by token, as ONNX has hidden states: gates
// G [N, gates * H] and cells C [N, H] with N = T * B and token t * B + b.
#pragma once

#include <algorithm>
#include <optional>

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

// G = X W^T + biases: the input side of all steps at once. by_gate: memory for [gates * H, N].
void input_gates(Run& run, const RecurrentShape& s, int64_t gates, const Tensor& x, const Tensor& w, const float* bias,
                 float* by_gate, float* G);

// The hidden states before each token, [N, H]: h0, then Y without its last step.
void states_before(const RecurrentShape& s, const float* h0, const float* y, float* before);

// Of gradients G [N, rows]: dX [N, E] = G W and dense dW [rows, columns] = G^T X, where they are wanted.
void input_gradient(Run& run, const RecurrentShape& s, int64_t gates, const float* G, const Tensor& w, Tensor* dx);
void weight_gradient(Run& run, int64_t rows, int64_t N, int64_t columns, const float* G, const float* x, Tensor* dw);
// sums[m] = sum over n of G[n, m].
void column_sums(Run& run, int64_t rows, int64_t N, const float* G, float* sums);

// The recurrent side of a forward sweep.
class RecurrentGates {
 public:
  RecurrentGates(NodeBuilder& node, int64_t gates, const RecurrentShape& s);

  // Before the sweep, with all threads idle: R [gates * H, H].
  void begin(Run& run, const float* r);

  // Where a step's sums of a gate go: to[b * row + u], added to what is there (beta 1) or in its place (0).
  struct Target {
    float* to;
    ptrdiff_t row;
    float beta;
  };
  // In the pool's task, by all its threads, which wait for each other at its end: R times the states h [B, H], summed
  // into target(gate) of every gate; and work(first, count) for units that have their sums.
  template <typename GateTarget, typename Work>
  void share(Run& run, int thread, const float* h, GateTarget&& target, Work&& work) const {
    if (!packed_) {
      run.pool.share(thread, s_.H, [&](int64_t first, int64_t end) {
        for (int64_t gate = 0; gate < gates_; ++gate) multiply_rows(run, h, gate, first, end - first, target(gate));
        work(first, end - first);
      });
      return;
    }
    const StepProduct::Factor factor = packed_->factor(h, thread);
    run.pool.share(thread, packed_->panels(), [&](int64_t begin, int64_t end) {
      for (int64_t panel = begin; panel < end; ++panel) {
        const int64_t first = packed_->first_column(panel);
        for (int64_t gate = 0; gate < gates_; ++gate) {
          const Target sums = target(gate);
          packed_->multiply(factor, gate, panel, sums.to + first, sums.row, sums.beta);
        }
        work(first, packed_->width(panel));
      }
    });
  }

 private:
  void multiply_rows(Run& run, const float* h, int64_t gate, int64_t first, int64_t count, Target sums) const;

  int64_t gates_;
  RecurrentShape s_;
  const float* r_ = nullptr;
  std::optional<StepProduct> packed_;  // R^T of each gate, where packing pays
};

// The recurrent side of a backward sweep, by all threads of a task: the steps from the last one on, with
// work(t, first, count) for units whose dh [B, H] of step t is complete. That is dY's part and, of the step after it,
// D R, D [N, gates * H] being written by `work`.
template <typename Work>
void sweep_back(Run& run, int thread, const RecurrentShape& s, int64_t gates, const StepProduct& recurrent,
                const float* dy, const float* D, float* dh, Work&& work) {
  const int64_t of_step = s.B * gates * s.H;
  for (int64_t t = s.T - 1; t >= 0; --t) {
    const bool last = t == s.T - 1;
    const StepProduct::Factor after = last ? StepProduct::Factor{} : recurrent.factor(D + (t + 1) * of_step, thread);
    run.pool.share(thread, recurrent.panels(), [&](int64_t begin, int64_t end) {
      for (int64_t panel = begin; panel < end; ++panel) {
        const int64_t first = recurrent.first_column(panel), count = recurrent.width(panel);
        for (int64_t b = 0; b < s.B; ++b) {
          std::copy_n(dy + (t * s.B + b) * s.H + first, count, dh + b * s.H + first);
        }
        if (!last) recurrent.multiply(after, 0, panel, dh + first, s.H, 1);
        work(t, first, count);
      }
    });
  }
}

}  // namespace phonograd
