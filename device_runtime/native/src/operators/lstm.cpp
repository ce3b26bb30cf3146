// LSTM and LSTMTraining (gates i, o, f, c; no peepholes), and LSTMGrad. The values `iofc` and `all_cell_states` pass
// from one to the other only, so they hold the layouts of recurrent.h: G [N, 4H] and C [N, H].
#include <algorithm>
#include <cstring>

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
        by_gate_(node.scratch("input side by gate", kGates * s_.H * s_.N())),
        recurrent_(node, kGates, s_) {
    if (y_ == nullptr) y_ = node.scratch("y", s_.N() * s_.H);
    if (cells_ == nullptr) cells_ = node.scratch("cells", s_.N() * s_.H);
    if (gates_ == nullptr) gates_ = node.scratch("gates", s_.N() * kGates * s_.H);
  }

  void run(Run& run) override {
    const int64_t rows = kGates * s_.H, of_step = s_.B * s_.H;
    for (int64_t m = 0; m < rows; ++m) {
      biases_->floats()[m] = bias_ == nullptr ? 0 : bias_->floats()[m] + bias_->floats()[rows + m];
    }
    input_gates(run, s_, kGates, *x_, *w_, biases_->floats(), by_gate_->floats(), gates_->floats());
    recurrent_.begin(run, r_->floats());
    run.pool.run([&](int thread) { sweep(run, thread); });
    if (last_h_ != nullptr) std::copy_n(y_->floats() + (s_.T - 1) * of_step, of_step, last_h_->floats());
    if (last_c_ != nullptr) std::copy_n(cells_->floats() + (s_.T - 1) * of_step, of_step, last_c_->floats());
  }
  const char* phase() const override { return "recurrent forward"; }
  std::string description() const override {
    return "LSTM sweep T=" + std::to_string(s_.T) + " B=" + std::to_string(s_.B) + " E=" + std::to_string(s_.E) +
           " H=" + std::to_string(s_.H);
  }

 private:
  void sweep(Run& run, int thread) const {
    const int64_t H = s_.H, of_step = s_.B * H;
    for (int64_t t = 0; t < s_.T; ++t) {
      float* gates = gates_->floats() + t * kGates * of_step;
      const float* h_before = t == 0 ? h0_->floats() : y_->floats() + (t - 1) * of_step;
      recurrent_.share(
          run, thread, h_before, [&](int64_t gate) { return RecurrentGates::Target{gates + gate * H, kGates * H, 1}; },
          [&](int64_t first, int64_t count) { cells(run.kernels, t, first, count); });
    }
  }

  void cells(const KernelSet& kernels, int64_t t, int64_t first, int64_t count) const {
    const int64_t B = s_.B, H = s_.H;
    for (int64_t b = 0; b < B; ++b) {
      const int64_t token = t * B + b, at = token * H + first;
      const float* c_before = t == 0 ? c0_->floats() + b * H + first : cells_->floats() + at - B * H;
      kernels.lstm_cell(static_cast<int>(count), gates_->floats() + token * kGates * H + first, H, c_before,
                        cells_->floats() + at, y_->floats() + at);
    }
  }

  Tensor *x_, *w_, *r_, *bias_, *h0_, *c0_;
  RecurrentShape s_;
  Tensor *y_, *last_h_, *last_c_, *cells_, *gates_, *biases_, *by_gate_;
  RecurrentGates recurrent_;
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
        dh_(node.scratch("dh", s_.B * s_.H)),
        dc_(node.scratch("dc", s_.B * s_.H)),
        recurrent_(node, 1, s_.B, kGates * s_.H, s_.H) {}

  void run(Run& run) override {
    const int64_t H = s_.H, rows = kGates * H;
    recurrent_.pack(run, 0, row_major(r_->floats(), H));
    states_before(s_, h0_->floats(), y_->floats(), before_->floats());
    std::fill_n(dc_->floats(), s_.B * H, 0.0f);
    run.pool.run([&](int thread) {
      sweep_back(run, thread, s_, kGates, recurrent_, dy_->floats(), gates_->floats(), dh_->floats(),
                 [&](int64_t t, int64_t first, int64_t count) { cell_gradients(run.kernels, t, first, count); });
    });
    input_gradient(run, s_, kGates, gates_->floats(), *w_, dx_);
    weight_gradient(run, rows, s_.N(), s_.E, gates_->floats(), x_->floats(), dw_);
    weight_gradient(run, rows, s_.N(), H, gates_->floats(), before_->floats(), dr_);
    if (dbias_ == nullptr) return;
    column_sums(run, rows, s_.N(), gates_->floats(), dbias_->floats());
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
    const int64_t rows = kGates * s_.H;
    return {gates_, 1, rows, input_side ? x_ : before_, rows, s_.N(), input_side ? s_.E : s_.H};
  }

 private:
  void cell_gradients(const KernelSet& kernels, int64_t t, int64_t first, int64_t count) const {
    const int64_t B = s_.B, H = s_.H;
    for (int64_t b = 0; b < B; ++b) {
      const int64_t token = t * B + b, at = token * H + first, of_step = b * H + first;
      const float* c_before = t == 0 ? c0_->floats() + of_step : cells_->floats() + at - B * H;
      kernels.lstm_cell_gradient(static_cast<int>(count), gates_->floats() + token * kGates * H + first, H, c_before,
                                 cells_->floats() + at, dh_->floats() + of_step, dc_->floats() + of_step);
    }
  }

  Tensor *x_, *w_, *r_, *h0_, *c0_, *y_, *cells_, *gates_, *dy_;
  RecurrentShape s_;
  Tensor *dx_, *dw_, *dr_, *dbias_, *before_, *dh_, *dc_;
  StepProduct recurrent_;
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
