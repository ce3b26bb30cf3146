// What the LSTM and GRU operators share. All that they hold lies token by token, as ONNX has hidden states: gates
// G [N, gates * H] and cells C [N, H] with N = T * B and token t * B + b.
#pragma once

#include <algorithm>
#include <optional>

#include "operators/step_product.h"

namespace phonograd {

struct RecurrentShape {
  int64_t T, B, E, H;
  int64_t fed;  // what a layer is fed back: H states, or those of a projection
  int64_t N() const { return T * B; }
};

inline RecurrentShape recurrent_shape(const Shape& x, const Shape& r, int64_t gates) {
  return {x[0], x[1], x[2], r[1] / gates, r[2]};
}

// Checks X [T,B,E], W [1,gates*H,E], R [1,gates*H,fed], B [1,2*gates*H] (at `bias`, may be left out), the initial
// states [1,B,H] from input `first_state` on, and the attributes hidden_size, direction.
RecurrentShape check_recurrent(const NodeChecker& node, int64_t gates, size_t bias, size_t first_state, size_t states,
                               bool projection = false);

// dX, dW, dR and dB of a gradient node.
void give_gradients(NodeChecker& node, int64_t gates, const RecurrentShape& s);

// G = X W^T + biases: the input side of all steps at once. by_gate: memory for [gates * H, N].
void input_gates(Run& run, const RecurrentShape& s, int64_t gates, const Tensor& x, const Tensor& w, const float* bias,
                 float* by_gate, float* G);

// The states that are fed back before each token, [N, fed]: h0, then Y without its last step.
void states_before(const RecurrentShape& s, const float* h0, const float* y, float* before);

// From gradients G [N, rows]: dX [N, E] = G W and dense dW [rows, columns] = G^T X, where they are wanted.
void input_gradient(Run& run, const RecurrentShape& s, int64_t gates, const float* G, const Tensor& w, Tensor* dx);
void weight_gradient(Run& run, int64_t rows, int64_t N, int64_t columns, const float* G, const float* x, Tensor* dw);
// sums[m] = sum over n of G[n, m].
void column_sums(Run& run, int64_t rows, int64_t N, const float* G, float* sums);

// Sweeps go back and forth over R, which is larger than a core's cache: every other step begins with what the one
// before it read last.
inline bool goes_back(int64_t t) {
  return t % 2 != 0;
}

// A sweep reads and writes a few units of each token, in rows that lie apart, and then the next few, or, going back,
// those before them: no cache finds that out by itself. So what follows `count` floats of a row, as many again, is
// fetched while these are computed with; of `rows` rows, H apart.
inline void fetch_next(bool back, const float* row, int64_t count, int64_t rows = 1, int64_t H = 0) {
  constexpr int64_t kLine = 16;  // floats in a cache line
  row += back ? -count : count;
  for (int64_t i = 0; i < rows; ++i, row += H) {
    for (int64_t u = 0; u < count; u += kLine) __builtin_prefetch(row + u + kLine - 1);
  }
}

// The recurrent side of a forward sweep.
class RecurrentGates {
 public:
  RecurrentGates(NodeBuilder& node, int64_t gates, const RecurrentShape& s);

  // Before the sweep, with all threads idle: R [gates * H, fed].
  void begin(Run& run, const float* r);

  // Where a step's sums of a gate go: to[b * row + u], added to what is there (beta 1) or in its place (0).
  struct Target {
    float* to;
    ptrdiff_t row;
    float beta;
  };
  // In the pool's task, by all its threads, which wait for each other at its end: R times the states h [B, fed] of step
  // t, summed into target(gate) of every gate; and work(first, count) for units that have their sums.
  template <typename GateTarget, typename Work>
  void share(Run& run, int thread, int64_t t, const float* h, GateTarget&& target, Work&& work) const {
    if (!packed_) {
      run.pool.share(thread, s_.H, goes_back(t), [&](int64_t first, int64_t end) {
        for (int64_t gate = 0; gate < gates_; ++gate) multiply_rows(run, h, gate, first, end - first, target(gate));
        work(first, end - first);
      });
      return;
    }
    const StepProduct::Factor factor = packed_->factor(h, thread);
    run.pool.share(thread, packed_->panels(), goes_back(t), [&](int64_t begin, int64_t end) {
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

// Step t of a backward sweep, by all threads of a task: to dh [B, fed], dY's part, if there is one, and of the step
// after it, if there is one, D R, D [gates * H, B] being written by `work`(first, count) for units whose dh is
// complete.
template <typename Work>
void step_back(Run& run, int thread, int64_t t, const RecurrentShape& s, const StepProduct& recurrent, const float* dy,
               const float* D_after, float* dh, Work&& work) {
  const StepProduct::Factor after = D_after == nullptr ? StepProduct::Factor{} : recurrent.factor(D_after, thread);
  run.pool.share(thread, recurrent.panels(), goes_back(t), [&](int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel) {
      const int64_t first = recurrent.first_column(panel), count = recurrent.width(panel);
      for (int64_t b = 0; b < s.B && dy != nullptr; ++b) {
        std::copy_n(dy + b * s.fed + first, count, dh + b * s.fed + first);
      }
      if (D_after != nullptr) recurrent.multiply(after, 0, panel, dh + first, s.fed, dy == nullptr ? 0 : 1);
      work(first, count);
    }
  });
}

// The recurrent side of a backward sweep where states h [B, H] are fed back: the steps from the last one on, with
// work(t, first, count). D [N, gates * H].
template <typename Work>
void sweep_back(Run& run, int thread, const RecurrentShape& s, int64_t gates, const StepProduct& recurrent,
                const float* dy, const float* D, float* dh, Work&& work) {
  for (int64_t t = s.T - 1; t >= 0; --t) {
    const float* after = t == s.T - 1 ? nullptr : D + (t + 1) * s.B * gates * s.H;
    step_back(run, thread, t, s, recurrent, dy + t * s.B * s.H, after, dh,
              [&](int64_t first, int64_t count) { work(t, first, count); });
  }
}

}  // namespace phonograd
