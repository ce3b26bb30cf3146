#include "operators/recurrent.h"

#include <algorithm>
#include <cstring>

namespace phonograd {

RecurrentShape check_recurrent(const NodeChecker& node, int64_t gates, size_t bias, size_t first_state, size_t states,
                               bool projection) {
  const Shape& x = node.float_input(0, 3).shape;
  const Shape& r = node.float_input(2, 3).shape;
  const RecurrentShape s = recurrent_shape(x, r, gates);
  node.require_floats(1, {1, gates * s.H, s.E});
  node.require_floats(2, {1, gates * s.H, projection ? s.fed : s.H});
  if (node.has_input(bias)) node.require_floats(bias, {1, 2 * gates * s.H});
  for (size_t state = 0; state < states; ++state) {
    node.require_floats(first_state + state, {1, s.B, s.H});
  }
  node.require(node.attribute("hidden_size", s.H) == s.H, "hidden_size does not fit R");
  const std::string direction = node.attribute_text("direction", "forward");
  node.require(direction == "forward", "direction '" + direction + "', expected forward");
  return s;
}

void give_gradients(NodeChecker& node, int64_t gates, const RecurrentShape& s) {
  node.output(0, DataType::float32, {s.T, s.B, s.E});
  node.output(1, DataType::float32, {1, gates * s.H, s.E});
  node.output(2, DataType::float32, {1, gates * s.H, s.fed});
  node.output(3, DataType::float32, {1, 2 * gates * s.H});
}

void input_gates(Run& run, const RecurrentShape& s, int64_t gates, const Tensor& x, const Tensor& w, const float* bias,
                 float* by_gate, float* G) {
  // W is the larger factor by far and is read in place, so the product comes gate by gate.
  constexpr int64_t kRows = 64;
  const int64_t N = s.N(), rows = gates * s.H;
  run.products.gemm(rows, N, s.E, row_major(w.floats(), s.E), transpose(row_major(x.floats(), s.E)), by_gate, N);
  run.pool.for_each(divided_up(rows, kRows), [&](int64_t item, int) {
    const int64_t end = std::min(rows, (item + 1) * kRows);
    for (int64_t n = 0; n < N; ++n) {
      for (int64_t m = item * kRows; m < end; ++m) G[n * rows + m] = by_gate[m * N + n] + bias[m];
    }
  });
}

void states_before(const RecurrentShape& s, const float* h0, const float* y, float* before) {
  const size_t step = static_cast<size_t>(s.B * s.fed);
  std::memcpy(before, h0, step * sizeof(float));
  std::memcpy(before + step, y, step * static_cast<size_t>(s.T - 1) * sizeof(float));
}

void input_gradient(Run& run, const RecurrentShape& s, int64_t gates, const float* G, const Tensor& w, Tensor* dx) {
  if (dx == nullptr) return;
  const int64_t depth = gates * s.H;
  run.products.gemm(s.N(), s.E, depth, row_major(G, depth), row_major(w.floats(), s.E), dx->floats(), s.E);
}

void weight_gradient(Run& run, int64_t rows, int64_t N, int64_t columns, const float* G, const float* x, Tensor* dw) {
  if (dw == nullptr) return;
  run.products.gemm(rows, columns, N, transpose(row_major(G, rows)), row_major(x, columns), dw->floats(), columns);
}

void column_sums(Run& run, int64_t rows, int64_t N, const float* G, float* sums) {
  constexpr int64_t kColumns = 64;
  std::fill_n(sums, rows, 0.0f);
  run.pool.for_each(divided_up(rows, kColumns), [&](int64_t item, int) {
    const int64_t m = item * kColumns;
    const auto count = static_cast<size_t>(std::min(kColumns, rows - m));
    for (int64_t n = 0; n < N; ++n) run.kernels.add_scaled(count, 1, G + n * rows + m, sums + m);
  });
}

namespace {

// Packing takes about as long as two steps of a training's minibatch.
bool packing_pays(const NodeBuilder& node, const RecurrentShape& s) {
  constexpr int64_t kSteps = 4, kTokens = 4;
  return s.T >= kSteps && (node.products().bf16() != nullptr || s.B >= kTokens);
}

}  // namespace

RecurrentGates::RecurrentGates(NodeBuilder& node, int64_t gates, const RecurrentShape& s) : gates_(gates), s_(s) {
  if (packing_pays(node, s)) packed_.emplace(node, gates, s.B, s.fed, s.H);
}

void RecurrentGates::begin(Run& run, const float* r) {
  r_ = r;
  if (!packed_) return;
  for (int64_t gate = 0; gate < gates_; ++gate) {
    packed_->pack(run, gate, transpose(row_major(r + gate * s_.H * s_.fed, s_.fed)));
  }
}

void RecurrentGates::multiply_rows(Run& run, const float* h, int64_t gate, int64_t first, int64_t count,
                                   Target sums) const {
  run.kernels.multiply_rows(static_cast<int>(s_.B), static_cast<int>(count), static_cast<int>(s_.fed), h, s_.fed,
                            r_ + (gate * s_.H + first) * s_.fed, s_.fed, sums.to + first, sums.row, sums.beta);
}

}  // namespace phonograd
