// GRU and GRUTraining (gates z, r, h; linear_before_reset = 1), and GRUGrad. The value `zrh` passes from one to the
// other only, so it holds G [N, 3H] as recurrent.h lays it out.
//   z, r = sigmoid(W x + b + R h + rb); q = R_h h + rb_h; n = tanh(W_h x + b_h + r q); h' = (1 - z) n + z h
#include <algorithm>
#include <cmath>
#include <cstring>

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
        s_(recurrent_shape(x_->shape, r_->shape, kGates)),
        y_(node.output(0)),
        last_h_(node.output(1)),
        gates_(node.output(2)),
        biases_(node.scratch("biases", kGates * s_.H)),
        by_gate_(node.scratch("input side by gate", kGates * s_.H * s_.N())),
        q_(node.scratch("q", s_.B * s_.H)),
        recurrent_(node, kGates, s_) {
    if (y_ == nullptr) y_ = node.scratch("y", s_.N() * s_.H);
    if (gates_ == nullptr) gates_ = node.scratch("gates", s_.N() * kGates * s_.H);
  }

  void run(Run& run) override {
    // The recurrent bias of n stays with q, inside the reset gate.
    const int64_t rows = kGates * s_.H, inside = 2 * s_.H, of_step = s_.B * s_.H;
    for (int64_t m = 0; m < rows; ++m) {
      const float recurrent = bias_ == nullptr || m >= inside ? 0 : bias_->floats()[rows + m];
      biases_->floats()[m] = bias_ == nullptr ? 0 : bias_->floats()[m] + recurrent;
    }
    input_gates(run, s_, kGates, *x_, *w_, biases_->floats(), by_gate_->floats(), gates_->floats());
    recurrent_.begin(run, r_->floats());
    run.pool.run([&](int thread) { sweep(run, thread); });
    if (last_h_ != nullptr) std::copy_n(y_->floats() + (s_.T - 1) * of_step, of_step, last_h_->floats());
  }
  const char* phase() const override { return "recurrent forward"; }
  std::string description() const override {
    return "GRU sweep T=" + std::to_string(s_.T) + " B=" + std::to_string(s_.B) + " E=" + std::to_string(s_.E) +
           " H=" + std::to_string(s_.H);
  }

 private:
  void sweep(Run& run, int thread) const {
    const int64_t H = s_.H, of_step = s_.B * H;
    for (int64_t t = 0; t < s_.T; ++t) {
      float* gates = gates_->floats() + t * kGates * of_step;
      const float* h_before = t == 0 ? h0_->floats() : y_->floats() + (t - 1) * of_step;
      const auto target = [&](int64_t gate) {
        if (gate == 2) return RecurrentGates::Target{q_->floats(), H, 0};
        return RecurrentGates::Target{gates + gate * H, kGates * H, 1};
      };
      recurrent_.share(run, thread, t, h_before, target, [&](int64_t first, int64_t count) {
        for (int64_t b = 0; b < s_.B; ++b) {
          const int64_t at = b * H + first;
          cells(run.kernels, goes_back(t), first, count, gates + b * kGates * H + first, q_->floats() + at,
                h_before + at, y_->floats() + t * of_step + at);
        }
      });
    }
  }

  // `count` units of a token, from `first` on.
  void cells(const KernelSet& kernels, bool back, int64_t first, int64_t count, float* z, const float* q,
             const float* h_before, float* h) const {
    fetch_next(back, z, count, kGates, s_.H);
    fetch_next(back, h, count);
    const size_t units = static_cast<size_t>(count);
    float *r = z + s_.H, *n = r + s_.H;
    const float* recurrent_bias = bias_ == nullptr ? nullptr : bias_->floats() + (kGates + 2) * s_.H + first;
    kernels.sigmoid(z, z, units);
    kernels.sigmoid(r, r, units);
    for (int64_t u = 0; u < count; ++u) n[u] += r[u] * (q[u] + (recurrent_bias == nullptr ? 0 : recurrent_bias[u]));
    kernels.hyperbolic_tangent(n, n, units);
    for (int64_t u = 0; u < count; ++u) h[u] = (1 - z[u]) * n[u] + z[u] * h_before[u];
  }

  Tensor *x_, *w_, *r_, *bias_, *h0_;
  RecurrentShape s_;
  Tensor *y_, *last_h_, *gates_, *biases_, *by_gate_, *q_;
  RecurrentGates recurrent_;
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
        s_(recurrent_shape(x_->shape, r_->shape, kGates)),
        dx_(node.output(0)),
        dw_(node.output(1)),
        dr_(node.output(2)),
        dbias_(node.output(3)),
        before_(node.step_scratch("states before", s_.N() * s_.H)),
        recurrent_side_(node.step_scratch("recurrent side", s_.N() * kGates * s_.H)),
        dh_(node.scratch("dh", s_.B * s_.H)),
        direct_(node.scratch("dh through z", s_.B * s_.H)),
        recurrent_(node, 1, s_.B, kGates * s_.H, s_.H) {}

  void run(Run& run) override {
    const int64_t H = s_.H, N = s_.N(), rows = kGates * H;
    recurrent_.pack(run, 0, row_major(r_->floats(), H));
    states_before(s_, h0_->floats(), y_->floats(), before_->floats());
    // q of all tokens again, in the place of its own gradient.
    float* q = recurrent_side_->floats() + 2 * H;
    for (int64_t n = 0; n < N; ++n) {
      for (int64_t u = 0; u < H; ++u) q[n * rows + u] = bias_ == nullptr ? 0 : bias_->floats()[(kGates + 2) * H + u];
    }
    run.products.gemm(N, H, H, row_major(before_->floats(), H), transpose(row_major(r_->floats() + 2 * H * H, H)), q,
                      rows, 1, 1);
    std::fill_n(direct_->floats(), s_.B * H, 0.0f);
    run.pool.run([&](int thread) {
      sweep_back(run, thread, s_, kGates, recurrent_, dy_->floats(), recurrent_side_->floats(), dh_->floats(),
                 [&](int64_t t, int64_t first, int64_t count) { cell_gradients(t, first, count); });
    });
    input_gradient(run, s_, kGates, gates_->floats(), *w_, dx_);
    weight_gradient(run, rows, N, s_.E, gates_->floats(), x_->floats(), dw_);
    weight_gradient(run, rows, N, H, recurrent_side_->floats(), before_->floats(), dr_);
    if (dbias_ == nullptr) return;
    column_sums(run, rows, N, gates_->floats(), dbias_->floats());
    column_sums(run, rows, N, recurrent_side_->floats(), dbias_->floats() + rows);
  }
  const char* phase() const override { return "recurrent backward"; }
  std::string description() const override {
    return "gradient of GRU sweep T=" + std::to_string(s_.T) + " B=" + std::to_string(s_.B) +
           " E=" + std::to_string(s_.E) + " H=" + std::to_string(s_.H) +
           (dw_ == nullptr ? ", weights' gradients factored" : "");
  }

  Factors factors(size_t index) const override {
    const bool input_side = index == 1;
    const int64_t rows = kGates * s_.H;
    return {input_side ? gates_ : recurrent_side_,
            1,
            rows,
            input_side ? x_ : before_,
            rows,
            s_.N(),
            input_side ? s_.E : s_.H};
  }

 private:
  // Gradients of the gates' inputs: the input side's into gates_, that of R h into recurrent_side_.
  void cell_gradients(int64_t t, int64_t first, int64_t count) const {
    const int64_t B = s_.B, H = s_.H;
    for (int64_t b = 0; b < B; ++b) {
      const int64_t token = t * B + b, at = token * kGates * H + first;
      const float *dh_of_token = dh_->floats() + b * H + first, *h_before = before_->floats() + token * H + first;
      float *z = gates_->floats() + at, *r = z + H, *n = r + H, *direct = direct_->floats() + b * H + first;
      float *dz_to = recurrent_side_->floats() + at, *dr_to = dz_to + H, *q = dr_to + H;
      fetch_next(goes_back(t), h_before, count);
      fetch_next(goes_back(t), z, count, kGates, H);
      fetch_next(goes_back(t), dz_to, count, kGates, H);
      for (int64_t u = 0; u < count; ++u) {
        const float dh = dh_of_token[u] + direct[u];
        const float dn = dh * (1 - z[u]) * (1 - n[u] * n[u]);
        const float dz = dh * (h_before[u] - n[u]) * z[u] * (1 - z[u]);
        const float dr = dn * q[u] * r[u] * (1 - r[u]);
        direct[u] = dh * z[u];
        q[u] = dn * r[u];
        z[u] = dz_to[u] = dz;
        r[u] = dr_to[u] = dr;
        n[u] = dn;
      }
    }
  }

  Tensor *x_, *w_, *r_, *bias_, *h0_, *y_, *gates_, *dy_;
  RecurrentShape s_;
  Tensor *dx_, *dw_, *dr_, *dbias_, *before_, *recurrent_side_, *dh_, *direct_;
  StepProduct recurrent_;
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
