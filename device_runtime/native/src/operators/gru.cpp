// GRU and GRUTraining (gates z, r, h; linear_before_reset = 1), and GRUGrad. The value `zrh` passes from one to the
// other only, so it holds G [3H, N] as recurrent.h lays it out.
//   z, r = sigmoid(W x + b + R h + rb); q = R_h h + rb_h; n = tanh(W_h x + b_h + r q); h' = (1 - z) n + z h
#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "operators/recurrent.h"

namespace phonograd {

namespace {

constexpr int64_t kGates = 3;

class Gru : public Operator {
 public:
  explicit Gru(NodeBuilder& node)
      : x_(node.input(0)),
        w_(node.input(1)),
        r_(node.input(2)),
        bias_(node.input(3)),
        h0_(node.input(5)),
        s_(recurrent_shape(*x_, *r_)),
        y_(node.output(0)),
        last_h_(node.output(1)),
        gates_(node.output(2)),
        biases_(node.scratch("biases", kGates * s_.H)),
        q_(node.scratch("q", s_.H * s_.B)) {
    if (y_ == nullptr) y_ = node.scratch("y", s_.N() * s_.H);
    if (gates_ == nullptr) gates_ = node.scratch("gates", kGates * s_.H * s_.N());
    if (packs_recurrent(node, s_)) packed_.emplace(node, kGates, s_);
  }

  void run(Run& run) override {
    // The recurrent bias of n stays with q, inside the reset gate.
    const int64_t rows = kGates * s_.H, inside = 2 * s_.H;
    for (int64_t m = 0; m < rows; ++m) {
      const float recurrent = bias_ == nullptr || m >= inside ? 0 : bias_->floats()[rows + m];
      biases_->floats()[m] = bias_ == nullptr ? 0 : bias_->floats()[m] + recurrent;
    }
    input_gates(run, s_, kGates, *x_, *w_, biases_->floats(), gates_->floats());
    if (packed_) packed_->pack(run, r_->floats());
    run.pool.run([&](int thread) { sweep(run, thread); });
    if (last_h_ == nullptr) return;
    std::memcpy(last_h_->data, y_->floats() + (s_.T - 1) * s_.B * s_.H,
                static_cast<size_t>(s_.B * s_.H) * sizeof(float));
  }
  const char* phase() const override { return "recurrent forward"; }
  std::string description() const override {
    return "GRU sweep T=" + std::to_string(s_.T) + " B=" + std::to_string(s_.B) + " E=" + std::to_string(s_.E) +
           " H=" + std::to_string(s_.H);
  }

 private:
  void sweep(Run& run, int thread) const {
    const int64_t B = s_.B, H = s_.H;
    for (int64_t t = 0; t < s_.T; ++t) {
      const float* h_before = t == 0 ? h0_->floats() : y_->floats() + (t - 1) * B * H;  // [B, H]
      if (packed_) {
        packed_->share(run, thread, row_major(h_before, H), [&](int64_t u, const float* sums, ptrdiff_t of_gate) {
          float *z = gates_->floats() + u * s_.N() + t * B, *q = q_->floats() + u * B;
          std::fill_n(q, B, 0.0f);
          packed_->add(sums, z);
          packed_->add(sums + of_gate, z + H * s_.N());
          packed_->add(sums + 2 * of_gate, q);
          cell(run.kernels, t, u, h_before);
        });
        continue;
      }
      run.pool.share(thread, H, [&](int64_t first, int64_t end) {
        for (int64_t u = first; u < end; ++u) {
          multiply_rows(run.kernels, t, u, h_before);
          cell(run.kernels, t, u, h_before);
        }
      });
    }
  }

  void multiply_rows(const KernelSet& kernels, int64_t t, int64_t u, const float* h_before) const {
    const int64_t B = s_.B, H = s_.H, N = s_.N();
    const int columns = static_cast<int>(B), depth = static_cast<int>(H);
    float *z = gates_->floats() + u * N + t * B, *q = q_->floats() + u * B;
    kernels.multiply_rows(2, columns, depth, r_->floats() + u * H, H * H, h_before, H, z, H * N, 1);
    kernels.multiply_rows(1, columns, depth, r_->floats() + (2 * H + u) * H, H, h_before, H, q, B, 0);
  }

  void cell(const KernelSet& kernels, int64_t t, int64_t u, const float* h_before) const {
    const int64_t B = s_.B, H = s_.H, N = s_.N();
    const size_t count = static_cast<size_t>(B);
    float *z = gates_->floats() + u * N + t * B, *r = z + H * N, *n = r + H * N, *q = q_->floats() + u * B;
    kernels.sigmoid(z, z, count);
    kernels.sigmoid(r, r, count);
    const float recurrent_bias = bias_ == nullptr ? 0 : bias_->floats()[(kGates + 2) * H + u];
    for (int64_t b = 0; b < B; ++b) n[b] += r[b] * (q[b] + recurrent_bias);
    kernels.hyperbolic_tangent(n, n, count);
    float* h_now = y_->floats() + t * B * H;
    for (int64_t b = 0; b < B; ++b) h_now[b * H + u] = (1 - z[b]) * n[b] + z[b] * h_before[b * H + u];
  }

  Tensor *x_, *w_, *r_, *bias_, *h0_;
  RecurrentShape s_;
  Tensor *y_, *last_h_, *gates_, *biases_, *q_;
  std::optional<PackedGates> packed_;
};

class GruGradient : public Operator {
 public:
  explicit GruGradient(NodeBuilder& node)
      : x_(node.input(0)),
        w_(node.input(1)),
        r_(node.input(2)),
        bias_(node.input(3)),
        h0_(node.input(5)),
        y_(node.input(6)),
        gates_(node.input(7)),
        dy_(node.input(8)),
        s_(recurrent_shape(*x_, *r_)),
        dx_(node.output(0)),
        dw_(node.output(1)),
        dr_(node.output(2)),
        dbias_(node.output(3)),
        before_(node.kept("states before", s_.N() * s_.H)),
        recurrent_(node.kept("recurrent side", kGates * s_.H * s_.N())),
        step_(node.scratch("gates of a step", kGates * s_.H * s_.B)),
        back_(node.scratch("dh back", s_.B * s_.H)),
        direct_(node.scratch("dh through z", s_.H * s_.B)),
        recurrent_product_(node, 1, s_.B, kGates * s_.H, s_.H) {}

  void run(Run& run) override {
    const int64_t H = s_.H, N = s_.N(), rows = kGates * H;
    recurrent_product_.pack(run, 0, row_major(r_->floats(), H));
    states_before(s_, h0_->floats(), y_->floats(), before_->floats());
    // q of all tokens again, [H, N] in the place of its own gradient.
    float* q = recurrent_->floats() + 2 * H * N;
    for (int64_t u = 0; u < H; ++u) {
      std::fill_n(q + u * N, N, bias_ == nullptr ? 0.0f : bias_->floats()[(kGates + 2) * H + u]);
    }
    run.products.gemm(H, N, H, row_major(r_->floats() + 2 * H * H, H), transposed(row_major(before_->floats(), H)), q,
                      N, 1, 1);
    std::fill_n(back_->floats(), H * s_.B, 0.0f);
    std::fill_n(direct_->floats(), H * s_.B, 0.0f);
    run.pool.run([&](int thread) { sweep(run, thread); });
    std::memcpy(recurrent_->floats(), gates_->floats(), static_cast<size_t>(2 * H * N) * sizeof(float));
    input_gradient(run, s_, kGates, gates_->floats(), *w_, dx_);
    weight_gradient(run, rows, N, s_.E, gates_->floats(), x_->floats(), dw_);
    weight_gradient(run, rows, N, H, recurrent_->floats(), before_->floats(), dr_);
    if (dbias_ == nullptr) return;
    row_sums(run, rows, N, gates_->floats(), dbias_->floats());
    row_sums(run, rows, N, recurrent_->floats(), dbias_->floats() + rows);
  }
  const char* phase() const override { return "recurrent backward"; }
  std::string description() const override {
    return "gradient of GRU sweep T=" + std::to_string(s_.T) + " B=" + std::to_string(s_.B) +
           " E=" + std::to_string(s_.E) + " H=" + std::to_string(s_.H) +
           (dw_ == nullptr ? ", weights' gradients factored" : "");
  }

  Factors factors(size_t index) const override {
    const bool input_side = index == 1;
    return {input_side ? gates_ : recurrent_, s_.N(), 1, input_side ? x_ : before_, kGates * s_.H, s_.N(),
            input_side ? s_.E : s_.H};
  }

 private:
  void sweep(Run& run, int thread) const {
    const int64_t H = s_.H;
    for (int64_t t = s_.T - 1; t >= 0; --t) {
      run.pool.share(thread, H, [&](int64_t first, int64_t end) {
        for (int64_t u = first; u < end; ++u) cell_gradient(t, u);
      });
      if (t > 0) hidden_gradient(run, thread, recurrent_product_, s_, step_->floats(), back_->floats());
    }
  }

  void cell_gradient(int64_t t, int64_t u) const {
    const int64_t B = s_.B, H = s_.H, N = s_.N();
    const float* h_before = before_->floats() + t * B * H;
    float *z = gates_->floats() + u * N + t * B, *r = z + H * N, *n = r + H * N;
    float *q = recurrent_->floats() + (2 * H + u) * N + t * B, *direct = direct_->floats() + u * B;
    for (int64_t b = 0; b < B; ++b) {
      const float dh = dy_->floats()[(t * B + b) * H + u] + back_->floats()[b * H + u] + direct[b];
      const float dn = dh * (1 - z[b]) * (1 - n[b] * n[b]);
      const float dz = dh * (h_before[b * H + u] - n[b]) * z[b] * (1 - z[b]);
      direct[b] = dh * z[b];
      const float dq = dn * r[b];
      r[b] = dn * q[b] * r[b] * (1 - r[b]);
      z[b] = dz;
      n[b] = dn;
      q[b] = dq;
    }
    std::memcpy(step_->floats() + u * B, z, static_cast<size_t>(B) * sizeof(float));
    std::memcpy(step_->floats() + (H + u) * B, r, static_cast<size_t>(B) * sizeof(float));
    std::memcpy(step_->floats() + (2 * H + u) * B, q, static_cast<size_t>(B) * sizeof(float));
  }

  Tensor *x_, *w_, *r_, *bias_, *h0_, *y_, *gates_, *dy_;
  RecurrentShape s_;
  Tensor *dx_, *dw_, *dr_, *dbias_, *before_, *recurrent_, *step_, *back_, *direct_;
  StepProduct recurrent_product_;
};

void check_forward(NodeChecker& node) {
  const RecurrentShape s = check_recurrent(node, kGates, 3, 5, 1);
  node.require(!node.has_input(4), "sequence lengths are not known");
  node.require(node.attribute("linear_before_reset", 0) == 1, "linear_before_reset is not 1");
  node.output(0, DataType::float32, {s.T, 1, s.B, s.H});
  node.output(1, DataType::float32, {1, s.B, s.H});
  node.output(2, DataType::float32, {s.T, 1, s.B, kGates * s.H});
}

void check_gradient(NodeChecker& node) {
  const RecurrentShape s = check_recurrent(node, kGates, 3, 5, 1);
  node.require(!node.has_input(4), "sequence lengths are not known");
  node.require(!node.has_input(9), "the gradient of the last state is not known");
  node.require(node.attribute("linear_before_reset", 0) == 1, "linear_before_reset is not 1");
  for (size_t index : {size_t{6}, size_t{8}}) node.require_floats(index, {s.T, 1, s.B, s.H});
  node.require_floats(7, {s.T, 1, s.B, kGates * s.H});
  node.overwrite_result_of("GRUTraining", 2, 7);
  node.require(!node.has_output(4), "the gradient of the first state is not known");
  give_gradients(node, kGates, s);
}

}  // namespace

const OperatorTable& gru_operators() {
  static const OperatorTable table = {
      {"GRU", "", 6, 6, 2, {"hidden_size", "direction", "linear_before_reset"}, check_forward, make_operator<Gru>},
      {"GRUTraining",
       "com.microsoft",
       6,
       6,
       3,
       {"hidden_size", "direction", "linear_before_reset"},
       check_forward,
       make_operator<Gru>},
      {"GRUGrad",
       "com.microsoft",
       9,
       10,
       5,
       {"hidden_size", "direction", "linear_before_reset"},
       check_gradient,
       make_operator<GruGradient>},
  };
  return table;
}

}  // namespace phonograd
