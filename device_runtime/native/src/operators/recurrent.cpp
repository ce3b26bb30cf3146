#include "operators/recurrent.h"

#include <algorithm>
#include <cstring>

namespace phonograd {

RecurrentShape check_recurrent(const NodeChecker& node, int64_t gates, size_t bias, size_t first_state, size_t states) {
  const Shape& x = node.float_input(0, 3).shape;
  const Shape& r = node.float_input(2, 3).shape;
  const RecurrentShape s{x[0], x[1], x[2], r[2]};
  node.require_floats(1, {1, gates * s.H, s.E});
  node.require_floats(2, {1, gates * s.H, s.H});
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
  node.output(2, DataType::float32, {1, gates * s.H, s.H});
  node.output(3, DataType::float32, {1, 2 * gates * s.H});
}

void input_gates(Run& run, const RecurrentShape& s, int64_t gates, const Tensor& x, const Tensor& w, const float* bias,
                 float* G) {
  const int64_t N = s.N(), rows = gates * s.H;
  run.pool.for_each((rows + 63) / 64, [&](int64_t item, int) {
    for (int64_t m = item * 64; m < std::min(rows, (item + 1) * 64); ++m) {
      std::fill_n(G + m * N, N, bias == nullptr ? 0.0f : bias[m]);
    }
  });
  run.products.gemm(rows, N, s.E, row_major(w.floats(), s.E), transposed(row_major(x.floats(), s.E)), G, N, 1, 1);
}

void states_before(const RecurrentShape& s, const float* h0, const float* y, float* before) {
  const size_t step = static_cast<size_t>(s.B * s.H);
  std::memcpy(before, h0, step * sizeof(float));
  std::memcpy(before + step, y, step * static_cast<size_t>(s.T - 1) * sizeof(float));
}

void input_gradient(Run& run, const RecurrentShape& s, int64_t gates, const float* G, const Tensor& w, Tensor* dx) {
  if (dx == nullptr) return;
  run.products.gemm(s.N(), s.E, gates * s.H, transposed(row_major(G, s.N())), row_major(w.floats(), s.E), dx->floats(),
                    s.E);
}

void weight_gradient(Run& run, int64_t rows, int64_t N, int64_t columns, const float* G, const float* x, Tensor* dw) {
  if (dw != nullptr) run.products.gemm(rows, columns, N, row_major(G, N), row_major(x, columns), dw->floats(), columns);
}

void row_sums(Run& run, int64_t rows, int64_t N, const float* G, float* sums) {
  constexpr int64_t kRows = 64, kSums = 8;
  run.pool.for_each(divided_up(rows, kRows), [&](int64_t item, int) {
    for (int64_t m = item * kRows; m < std::min(rows, (item + 1) * kRows); ++m) {
      const float* row = G + m * N;
      float sum[kSums] = {};
      int64_t n = 0;
      for (; n + kSums <= N; n += kSums) {
        for (int64_t i = 0; i < kSums; ++i) sum[i] += row[n + i];
      }
      for (int64_t i = 0; n < N; ++n, ++i) sum[i] += row[n];
      sums[m] = ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
    }
  });
}

void hidden_gradient(Run& run, int thread, const StepProduct& recurrent, const RecurrentShape& s, const float* d,
                     float* dh) {
  const StepProduct::Factor factor = recurrent.factor({d, 1, s.B}, thread);
  run.pool.share(thread, recurrent.panels(), [&](int64_t first, int64_t end) {
    for (int64_t panel = first; panel < end; ++panel) {
      recurrent.multiply(factor, 0, panel, dh + recurrent.first_column(panel), s.H);
    }
  });
}

bool packs_recurrent(const NodeBuilder& node, const RecurrentShape& s) {
  constexpr int64_t kSteps = 4;  // packing takes about as long as two steps of fp32
  return node.products().bf16() != nullptr && s.T >= kSteps;
}

PackedGates::PackedGates(NodeBuilder& node, int64_t gates, const RecurrentShape& s)
    : gates_(gates),
      s_(s),
      stride_(node.products().kernels().panel),
      product_(node, gates, s.B, s.H, s.H),
      sums_(node.scratch("sums of a step", node.products().threads() * gates * s.B * stride_)) {}

void PackedGates::pack(Run& run, const float* r) const {
  for (int64_t gate = 0; gate < gates_; ++gate) {
    product_.pack(run, gate, transposed(row_major(r + gate * s_.H * s_.H, s_.H)));
  }
}

}  // namespace phonograd
