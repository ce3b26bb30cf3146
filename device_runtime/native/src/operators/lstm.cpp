// LSTM and LSTMTraining (gates i, o, f, c; no peepholes), and LSTMGrad. The values `iofc` and `all_cell_states` pass
// from one to the other only, so they hold the layouts of recurrent.h: G [4H, N] and C [H, N].
#include <algorithm>
#include <cstring>
#include <optional>

#include "operators/recurrent.h"

namespace phonograd {

namespace {

constexpr int64_t kGates = 4;

class Lstm : public Operator {
 public:
  explicit Lstm(NodeBuilder& node)
      : x_(node.input(0)),
        w_(node.input(1)),
        r_(node.input(2)),
        bias_(node.input(3)),
        h0_(node.input(5)),
        c0_(node.input(6)),
        s_(recurrent_shape(*x_, *r_)),
        y_(node.output(0)),
        last_h_(node.output(1)),
        last_c_(node.output(2)),
        cells_(node.output(3)),
        gates_(node.output(4)),
        biases_(node.scratch("biases", kGates * s_.H)),
        first_c_(node.scratch("c0", s_.H * s_.B)),
        h_(node.scratch("h", s_.H * s_.B)),
        states_(node.scratch("states of two steps", 2 * s_.B * padded_)) {
    if (y_ == nullptr) y_ = node.scratch("y", s_.N() * s_.H);
    if (cells_ == nullptr) cells_ = node.scratch("cells", s_.H * s_.N());
    if (gates_ == nullptr) gates_ = node.scratch("gates", kGates * s_.H * s_.N());
    if (packs_recurrent(node, s_)) packed_.emplace(node, kGates, s_);
  }

  void run(Run& run) override {
    const int64_t rows = kGates * s_.H;
    for (int64_t m = 0; m < rows; ++m) {
      biases_->floats()[m] = bias_ == nullptr ? 0 : bias_->floats()[m] + bias_->floats()[rows + m];
    }
    input_gates(run, s_, kGates, *x_, *w_, biases_->floats(), gates_->floats());
    for (int64_t b = 0; b < s_.B; ++b) std::copy_n(h0_->floats() + b * s_.H, s_.H, states_->floats() + b * padded_);
    for (int64_t u = 0; u < s_.H; ++u) {
      for (int64_t b = 0; b < s_.B; ++b) first_c_->floats()[u * s_.B + b] = c0_->floats()[b * s_.H + u];
    }
    if (packed_) packed_->pack(run, r_->floats());
    run.pool.run([&](int thread) { sweep(run, thread); });
    if (last_h_ != nullptr) {
      std::memcpy(last_h_->data, y_->floats() + (s_.T - 1) * s_.B * s_.H,
                  static_cast<size_t>(s_.B * s_.H) * sizeof(float));
    }
    if (last_c_ == nullptr) return;
    for (int64_t u = 0; u < s_.H; ++u) {
      for (int64_t b = 0; b < s_.B; ++b) {
        last_c_->floats()[b * s_.H + u] = cells_->floats()[u * s_.N() + (s_.T - 1) * s_.B + b];
      }
    }
  }
  const char* phase() const override { return "recurrent forward"; }
  std::string description() const override {
    return "LSTM sweep T=" + std::to_string(s_.T) + " B=" + std::to_string(s_.B) + " E=" + std::to_string(s_.E) +
           " H=" + std::to_string(s_.H);
  }

 private:
  void sweep(Run& run, int thread) const {
    const int64_t B = s_.B, H = s_.H, N = s_.N();
    for (int64_t t = 0; t < s_.T; ++t) {
      const float* h_before = states_->floats() + t % 2 * B * padded_;
      if (packed_) {
        packed_->share(run, thread, row_major(h_before, padded_), [&](int64_t u, const float* sums, ptrdiff_t of_gate) {
          for (int64_t gate = 0; gate < kGates; ++gate) {
            packed_->add(sums + gate * of_gate, gates_->floats() + (gate * H + u) * N + t * B);
          }
          cell(run.kernels, t, u);
        });
        continue;
      }
      run.pool.share(thread, H, [&](int64_t first, int64_t end) {
        for (int64_t u = first; u < end; ++u) {
          run.kernels.multiply_rows(kGates, static_cast<int>(B), static_cast<int>(H), r_->floats() + u * H, H * H,
                                    h_before, padded_, gates_->floats() + u * N + t * B, H * N, 1);
          cell(run.kernels, t, u);
        }
      });
    }
  }

  void cell(const KernelSet& kernels, int64_t t, int64_t u) const {
    const int64_t B = s_.B, H = s_.H, N = s_.N();
    float* gates = gates_->floats() + u * N + t * B;  // four rows [B], H * N apart
    float* c = cells_->floats() + u * N + t * B;
    float* h = h_->floats() + u * B;
    kernels.lstm_cell(static_cast<int>(B), gates, H * N, t == 0 ? first_c_->floats() + u * B : c - B, c, h);
    float *y = y_->floats() + t * B * H, *h_now = states_->floats() + (t + 1) % 2 * B * padded_;
    for (int64_t b = 0; b < B; ++b) y[b * H + u] = h_now[b * padded_ + u] = h[b];
  }

  Tensor *x_, *w_, *r_, *bias_, *h0_, *c0_;
  RecurrentShape s_;
  int64_t padded_ = divided_up(s_.H, 16) * 16;  // a state's row begins with a cache line: no load takes two
  Tensor *y_, *last_h_, *last_c_, *cells_, *gates_, *biases_, *first_c_, *h_;
  Tensor* states_;  // [2, B, padded_]: before a step and after it, in turn
  std::optional<PackedGates> packed_;
};

class LstmGradient : public Operator {
 public:
  explicit LstmGradient(NodeBuilder& node)
      : x_(node.input(0)),
        w_(node.input(1)),
        r_(node.input(2)),
        h0_(node.input(4)),
        c0_(node.input(5)),
        y_(node.input(6)),
        cells_(node.input(7)),
        gates_(node.input(8)),
        dy_(node.input(9)),
        s_(recurrent_shape(*x_, *r_)),
        dx_(node.output(0)),
        dw_(node.output(1)),
        dr_(node.output(2)),
        dbias_(node.output(3)),
        before_(node.kept("states before", s_.N() * s_.H)),
        step_(node.scratch("gates of a step", kGates * s_.H * s_.B)),
        back_(node.scratch("dh back", s_.B * s_.H)),
        dh_(node.scratch("dh", s_.H * s_.B)),
        dc_(node.scratch("dc", s_.H * s_.B)),
        first_c_(node.scratch("c0", s_.H * s_.B)),
        recurrent_product_(node, 1, s_.B, kGates * s_.H, s_.H) {}

  void run(Run& run) override {
    const int64_t H = s_.H, B = s_.B, rows = kGates * H;
    recurrent_product_.pack(run, 0, row_major(r_->floats(), H));
    states_before(s_, h0_->floats(), y_->floats(), before_->floats());
    std::fill_n(dc_->floats(), H * B, 0.0f);
    std::fill_n(back_->floats(), H * B, 0.0f);
    for (int64_t u = 0; u < H; ++u) {
      for (int64_t b = 0; b < B; ++b) first_c_->floats()[u * B + b] = c0_->floats()[b * H + u];
    }
    run.pool.run([&](int thread) { sweep(run, thread); });
    input_gradient(run, s_, kGates, gates_->floats(), *w_, dx_);
    weight_gradient(run, rows, s_.N(), s_.E, gates_->floats(), x_->floats(), dw_);
    weight_gradient(run, rows, s_.N(), H, gates_->floats(), before_->floats(), dr_);
    if (dbias_ == nullptr) return;
    row_sums(run, rows, s_.N(), gates_->floats(), dbias_->floats());
    std::memcpy(dbias_->floats() + rows, dbias_->floats(), static_cast<size_t>(rows) * sizeof(float));
  }
  const char* phase() const override { return "recurrent backward"; }
  std::string description() const override {
    return "gradient of LSTM sweep T=" + std::to_string(s_.T) + " B=" + std::to_string(s_.B) +
           " E=" + std::to_string(s_.E) + " H=" + std::to_string(s_.H) +
           (dw_ == nullptr ? ", weights' gradients factored" : "");
  }

  Factors factors(size_t index) const override {
    const bool input_side = index == 1;
    return {gates_, s_.N(), 1, input_side ? x_ : before_, kGates * s_.H, s_.N(), input_side ? s_.E : s_.H};
  }

 private:
  void sweep(Run& run, int thread) const {
    const KernelSet& kernels = run.kernels;
    const int64_t H = s_.H;
    for (int64_t t = s_.T - 1; t >= 0; --t) {
      run.pool.share(thread, H, [&](int64_t first, int64_t end) {
        for (int64_t u = first; u < end; ++u) cell_gradient(kernels, t, u);
      });
      if (t > 0) hidden_gradient(run, thread, recurrent_product_, s_, step_->floats(), back_->floats());
    }
  }

  void cell_gradient(const KernelSet& kernels, int64_t t, int64_t u) const {
    const int64_t B = s_.B, H = s_.H, N = s_.N();
    float* dh = dh_->floats() + u * B;
    for (int64_t b = 0; b < B; ++b) dh[b] = dy_->floats()[(t * B + b) * H + u] + back_->floats()[b * H + u];
    float* gates = gates_->floats() + u * N + t * B;
    const float* c = cells_->floats() + u * N + t * B;
    kernels.lstm_cell_gradient(static_cast<int>(B), gates, H * N, t == 0 ? first_c_->floats() + u * B : c - B, c, dh,
                               dc_->floats() + u * B);
    for (int64_t gate = 0; gate < kGates; ++gate) {
      std::memcpy(step_->floats() + (gate * H + u) * B, gates + gate * H * N, static_cast<size_t>(B) * sizeof(float));
    }
  }

  Tensor *x_, *w_, *r_, *h0_, *c0_, *y_, *cells_, *gates_, *dy_;
  RecurrentShape s_;
  Tensor *dx_, *dw_, *dr_, *dbias_, *before_, *step_, *back_, *dh_, *dc_, *first_c_;
  StepProduct recurrent_product_;
};

void check_forward(NodeChecker& node) {
  const RecurrentShape s = check_recurrent(node, kGates, 3, 5, 2);
  node.require(!node.has_input(4), "sequence lengths are not known");
  node.require(!node.has_input(7), "peepholes are not known");
  node.require(node.attribute("input_forget", 0) == 0, "coupled input and forget gates are not known");
  node.output(0, DataType::float32, {s.T, 1, s.B, s.H});
  node.output(1, DataType::float32, {1, s.B, s.H});
  node.output(2, DataType::float32, {1, s.B, s.H});
  node.output(3, DataType::float32, {s.T, 1, s.B, s.H});
  node.output(4, DataType::float32, {s.T, 1, s.B, kGates * s.H});
}

void check_gradient(NodeChecker& node) {
  const RecurrentShape s = check_recurrent(node, kGates, 12, 4, 2);  // no input 12: the biases are not needed
  node.require(!node.has_input(3), "sequence lengths are not known");
  node.require(!node.has_input(10) && !node.has_input(11), "gradients of the last states are not known");
  node.require(node.attribute("input_forget", 0) == 0, "coupled input and forget gates are not known");
  for (size_t index : {size_t{6}, size_t{7}, size_t{9}}) node.require_floats(index, {s.T, 1, s.B, s.H});
  node.require_floats(8, {s.T, 1, s.B, kGates * s.H});
  node.require_result_of("LSTMTraining", 3, 7);
  node.overwrite_result_of("LSTMTraining", 4, 8);
  node.require(!node.has_output(4) && !node.has_output(5), "gradients of the first states are not known");
  give_gradients(node, kGates, s);
}

}  // namespace

const OperatorTable& lstm_operators() {
  static const OperatorTable table = {
      {"LSTM", "", 7, 8, 3, {"hidden_size", "direction", "input_forget"}, check_forward, make_operator<Lstm>},
      {"LSTMTraining",
       "com.microsoft",
       7,
       8,
       5,
       {"hidden_size", "direction", "input_forget"},
       check_forward,
       make_operator<Lstm>},
      {"LSTMGrad",
       "com.microsoft",
       10,
       12,
       6,
       {"hidden_size", "direction", "input_forget"},
       check_gradient,
       make_operator<LstmGradient>},
  };
  return table;
}

}  // namespace phonograd
