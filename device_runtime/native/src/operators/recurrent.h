// What the LSTM and GRU operators share. Inside an operator gates and cells lie unit by unit, tokens contiguous:
// G [gates * H, N], C [H, N] with N = T * B and token t * B + b; hidden states lie as ONNX has them, Y [T, 1, B, H].
#pragma once

#include "operators/operator.h"

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

// R [rows, H] packed in panels over its whole depth; and dh [B, H] = D^T R, D [rows, B], by all threads of a task,
// which wait for each other at its end.
size_t packed_recurrent_size(const KernelSet& kernels, int64_t rows, int64_t H);
void pack_recurrent(Run& run, int64_t rows, int64_t H, const float* r, float* packed);
void hidden_gradient(Run& run, int thread, int64_t rows, const RecurrentShape& s, const float* d, const float* packed,
                     float* dh);

}  // namespace phonograd
