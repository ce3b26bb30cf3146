// LSTM and LSTMTraining (gates i, o, f, c; no peepholes), and LSTMGrad. The values `iofc` and `all_cell_states` pass
// from one to the other only, so they hold the layouts of recurrent.h: G [N, 4H] and C [N, H].
//
// CIFG, CIFGTraining and CIFGGrad are the same with gates i, o, c, where f = 1 - i, and a projection P [1, fed, H]: P
// m, m [H] being an LSTM's h, is what the layer outputs and is fed back. Graphs have them from `couple_gates`.
#include <algorithm>
#include <cstring>

#include "operators/recurrent.h"

namespace phonograd {

namespace {

template <bool coupled>
constexpr int64_t kGates = coupled ? 3 : 4;

template <bool coupled>
class Lstm : public Operator {
 public:
  explicit Lstm(NodeBuilder& node)
      : x_(node.input(0)),
        w_(node.input(1)),
        r_(node.input(2)),
        bias_(node.input(3)),
        h0_(node.input(5)),
        c0_(node.input(6)),
        s_(recurrent_shape(x_->shape, r_->shape, kGates<coupled>)),
        y_(node.output(coupled ? 5 : 0)),
        last_h_(node.output(1)),
        last_c_(node.output(2)),
        cells_(node.output(3)),
        gates_(node.output(4)),
        biases_(node.scratch("biases", rows())),
        by_gate_(node.scratch("input side by gate", rows() * s_.N())),
        recurrent_(node, kGates<coupled>, s_) {
    if (y_ == nullptr) y_ = node.scratch("y", s_.N() * s_.H);
    if (cells_ == nullptr) cells_ = node.scratch("cells", s_.N() * s_.H);
    if (gates_ == nullptr) gates_ = node.scratch("gates", s_.N() * rows());
    if constexpr (!coupled) return;
    p_ = node.input(7);
    fed_ = node.output(0) == nullptr ? node.scratch("fed back", s_.N() * s_.fed) : node.output(0);
    first_ = node.scratch("fed back at first", s_.B * s_.fed);
    projection_.emplace(node, 1, s_.B, s_.H, s_.fed);
  }

  void run(Run& run) override {
    const int64_t of_step = s_.B * s_.H;
    for (int64_t m = 0; m < rows(); ++m) {
      biases_->floats()[m] = bias_ == nullptr ? 0 : bias_->floats()[m] + bias_->floats()[rows() + m];
    }
    input_gates(run, s_, kGates<coupled>, *x_, *w_, biases_->floats(), by_gate_->floats(), gates_->floats());
    recurrent_.begin(run, r_->floats());
    if constexpr (coupled) projection_->pack(run, 0, transpose(row_major(p_->floats(), s_.H)));
    run.pool.run([&](int thread) { sweep(run, thread); });
    if (last_h_ != nullptr) std::copy_n(y_->floats() + (s_.T - 1) * of_step, of_step, last_h_->floats());
    if (last_c_ != nullptr) std::copy_n(cells_->floats() + (s_.T - 1) * of_step, of_step, last_c_->floats());
  }
  const char* phase() const override { return "recurrent forward"; }
  std::string description() const override {
    return std::string(coupled ? "CIFG" : "LSTM") + " sweep T=" + std::to_string(s_.T) + " B=" + std::to_string(s_.B) +
           " E=" + std::to_string(s_.E) + " H=" + std::to_string(s_.H);
  }

 private:
  int64_t rows() const { return kGates<coupled> * s_.H; }

  void sweep(Run& run, int thread) const {
    const int64_t H = s_.H, of_step = s_.B * H;
    const float* h_before = h0_->floats();
    if constexpr (coupled) h_before = project(run, thread, -1, h_before, first_->floats());
    for (int64_t t = 0; t < s_.T; ++t) {
      float* gates = gates_->floats() + t * s_.B * rows();
      recurrent_.share(
          run, thread, t, h_before, [&](int64_t gate) { return RecurrentGates::Target{gates + gate * H, rows(), 1}; },
          [&](int64_t first, int64_t count) { cells(run.kernels, t, first, count); });
      h_before = y_->floats() + t * of_step;
      if constexpr (coupled) h_before = project(run, thread, t, h_before, fed_->floats() + t * s_.B * s_.fed);
    }
  }

  // m P^T of a step, to [B, fed].
  const float* project(Run& run, int thread, int64_t t, const float* m, float* to) const {
    const StepProduct::Factor factor = projection_->factor(m, thread);
    run.pool.share(thread, projection_->panels(), goes_back(t), [&](int64_t begin, int64_t end) {
      for (int64_t panel = begin; panel < end; ++panel) {
        projection_->multiply(factor, 0, panel, to + projection_->first_column(panel), s_.fed, 0);
      }
    });
    return to;
  }

  void cells(const KernelSet& kernels, int64_t t, int64_t first, int64_t count) const {
    const int64_t B = s_.B, H = s_.H;
    const auto cell = coupled ? kernels.coupled_cell : kernels.lstm_cell;
    for (int64_t b = 0; b < B; ++b) {
      const int64_t token = t * B + b, at = token * H + first;
      const float* c_before = t == 0 ? c0_->floats() + b * H + first : cells_->floats() + at - B * H;
      fetch_next(goes_back(t), c_before, count);
      fetch_next(goes_back(t), cells_->floats() + at, count);
      fetch_next(goes_back(t), y_->floats() + at, count);
      fetch_next(goes_back(t), gates_->floats() + token * rows() + first, count, kGates<coupled>, H);
      cell(static_cast<int>(count), gates_->floats() + token * rows() + first, H, c_before, cells_->floats() + at,
           y_->floats() + at);
    }
  }

  Tensor *x_, *w_, *r_, *bias_, *h0_, *c0_;
  RecurrentShape s_;
  Tensor *y_, *last_h_, *last_c_, *cells_, *gates_, *biases_, *by_gate_;
  RecurrentGates recurrent_;
  Tensor *p_ = nullptr, *fed_ = nullptr, *first_ = nullptr;  // of coupled gates, as the next
  std::optional<StepProduct> projection_;
};

template <bool coupled>
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
        s_(recurrent_shape(x_->shape, r_->shape, kGates<coupled>)),
        dx_(node.output(0)),
        dw_(node.output(1)),
        dr_(node.output(2)),
        dbias_(node.output(3)),
        before_(node.step_scratch("states before", s_.N() * s_.fed)),
        dh_(node.scratch("dh", s_.B * s_.H)),
        dc_(node.scratch("dc", s_.B * s_.H)),
        recurrent_(node, 1, s_.B, rows(), s_.fed) {
    if constexpr (!coupled) return;
    p_ = node.input(10);
    fed_ = node.input(11);
    dp_ = node.output(4);
    units_ = node.step_scratch("units", (s_.B + s_.N()) * s_.H);
    dfed_ = node.step_scratch("gradients of what is fed back", (s_.B + s_.N()) * s_.fed);
    projection_.emplace(node, 1, s_.B, s_.fed, s_.H);
  }

  void run(Run& run) override {
    recurrent_.pack(run, 0, row_major(r_->floats(), s_.fed));
    std::fill_n(dc_->floats(), s_.B * s_.H, 0.0f);
    const auto cells = [&](int64_t t, int64_t first, int64_t count) { cell_gradients(run.kernels, t, first, count); };
    if constexpr (coupled) {
      projection_->pack(run, 0, row_major(p_->floats(), s_.H));
      gather_units(run);
      run.pool.run([&](int thread) { sweep_back_projected(run, thread, cells); });
      weight_gradient(run, s_.fed, s_.B + s_.N(), s_.H, dfed_->floats(), units_->floats(), dp_);
    } else {
      states_before(s_, h0_->floats(), y_->floats(), before_->floats());
      run.pool.run([&](int thread) {
        sweep_back(run, thread, s_, kGates<coupled>, recurrent_, dy_->floats(), gates_->floats(), dh_->floats(), cells);
      });
    }
    input_gradient(run, s_, kGates<coupled>, gates_->floats(), *w_, dx_);
    weight_gradient(run, rows(), s_.N(), s_.E, gates_->floats(), x_->floats(), dw_);
    weight_gradient(run, rows(), s_.N(), s_.fed, gates_->floats(), before_->floats(), dr_);
    if (dbias_ == nullptr) return;
    column_sums(run, rows(), s_.N(), gates_->floats(), dbias_->floats());
    std::copy_n(dbias_->floats(), rows(), dbias_->floats() + rows());
  }
  const char* phase() const override { return "recurrent backward"; }
  std::string description() const override {
    return std::string("gradient of ") + (coupled ? "CIFG" : "LSTM") + " sweep T=" + std::to_string(s_.T) +
           " B=" + std::to_string(s_.B) + " E=" + std::to_string(s_.E) + " H=" + std::to_string(s_.H) +
           (dw_ == nullptr ? ", weights' gradients factored" : "");
  }

  Factors factors(size_t index) const override {
    if (index == 4) return {dfed_, 1, s_.fed, units_, s_.fed, s_.B + s_.N(), s_.H};
    const bool input_side = index == 1;
    return {gates_, 1, rows(), input_side ? x_ : before_, rows(), s_.N(), input_side ? s_.E : s_.fed};
  }

 private:
  int64_t rows() const { return kGates<coupled> * s_.H; }

  // All m that P multiplied, [B + N, H]: the state before the window, then each token's; and what is fed back before
  // each token.
  void gather_units(Run& run) {
    const int64_t of_step = s_.B * s_.H;
    std::copy_n(h0_->floats(), of_step, units_->floats());
    std::copy_n(y_->floats(), s_.T * of_step, units_->floats() + of_step);
    float* first = dfed_->floats();  // until the sweep
    run.products.gemm(s_.B, s_.fed, s_.H, row_major(units_->floats(), s_.H), transpose(row_major(p_->floats(), s_.H)),
                      first, s_.fed);
    states_before(s_, first, fed_->floats(), before_->floats());
  }

  // sweep_back() where m P^T is fed back: dh is D R of the step after it plus dY, and m's gradient dh P.
  template <typename Work>
  void sweep_back_projected(Run& run, int thread, Work&& work) const {
    const int64_t of_step = s_.B * s_.fed;
    for (int64_t t = s_.T - 1; t >= -1; --t) {
      float* dfed = dfed_->floats() + (t + 1) * of_step;
      const float* after = t == s_.T - 1 ? nullptr : gates_->floats() + (t + 1) * s_.B * rows();
      step_back(run, thread, t, s_, recurrent_, t < 0 ? nullptr : dy_->floats() + t * of_step, after, dfed,
                [](int64_t, int64_t) {});
      if (t < 0) return;
      const StepProduct::Factor factor = projection_->factor(dfed, thread);
      run.pool.share(thread, projection_->panels(), goes_back(t), [&](int64_t begin, int64_t end) {
        for (int64_t panel = begin; panel < end; ++panel) {
          const int64_t first = projection_->first_column(panel);
          projection_->multiply(factor, 0, panel, dh_->floats() + first, s_.H, 0);
          work(t, first, projection_->width(panel));
        }
      });
    }
  }

  void cell_gradients(const KernelSet& kernels, int64_t t, int64_t first, int64_t count) const {
    const int64_t B = s_.B, H = s_.H;
    const auto gradient = coupled ? kernels.coupled_cell_gradient : kernels.lstm_cell_gradient;
    for (int64_t b = 0; b < B; ++b) {
      const int64_t token = t * B + b, at = token * H + first, of_step = b * H + first;
      const float* c_before = t == 0 ? c0_->floats() + of_step : cells_->floats() + at - B * H;
      fetch_next(goes_back(t), c_before, count);
      fetch_next(goes_back(t), cells_->floats() + at, count);
      fetch_next(goes_back(t), gates_->floats() + token * rows() + first, count, kGates<coupled>, H);
      gradient(static_cast<int>(count), gates_->floats() + token * rows() + first, H, c_before, cells_->floats() + at,
               dh_->floats() + of_step, dc_->floats() + of_step);
    }
  }

  Tensor *x_, *w_, *r_, *h0_, *c0_, *y_, *cells_, *gates_, *dy_;
  RecurrentShape s_;
  Tensor *dx_, *dw_, *dr_, *dbias_, *before_, *dh_, *dc_;
  StepProduct recurrent_;
  Tensor *p_ = nullptr, *fed_ = nullptr, *dp_ = nullptr, *units_ = nullptr, *dfed_ = nullptr;  // of coupled gates
  std::optional<StepProduct> projection_;
};

template <bool coupled>
void check_forward(NodeChecker& node) {
  const RecurrentShape s = check_recurrent(node, kGates<coupled>, 3, 5, 2, coupled);
  node.require(!node.has_input(4), "sequence lengths are not known");
  node.require(node.attribute("input_forget", 0) == 0, "coupled input and forget gates are not known");
  if constexpr (coupled) {
    node.require_floats(7, {1, s.fed, s.H});
    node.output(0, DataType::float32, {s.T, s.B, s.fed});
  } else {
    node.require(!node.has_input(7), "peepholes are not known");
    node.output(0, DataType::float32, {s.T, 1, s.B, s.H});
  }
  node.output(1, DataType::float32, {1, s.B, s.H});
  node.output(2, DataType::float32, {1, s.B, s.H});
  node.output(3, DataType::float32, {s.T, 1, s.B, s.H});
  node.output(4, DataType::float32, {s.T, 1, s.B, kGates<coupled> * s.H});
  if constexpr (coupled) node.output(5, DataType::float32, {s.T, 1, s.B, s.H});
}

template <bool coupled>
void check_gradient(NodeChecker& node) {
  const char* forward = coupled ? "CIFGTraining" : "LSTMTraining";
  const RecurrentShape s = check_recurrent(node, kGates<coupled>, 12, 4, 2, coupled);  // no input 12: needs no biases
  node.require(!node.has_input(3), "sequence lengths are not known");
  node.require(node.attribute("input_forget", 0) == 0, "coupled input and forget gates are not known");
  for (size_t index : {size_t{6}, size_t{7}}) node.require_floats(index, {s.T, 1, s.B, s.H});
  node.require_floats(8, {s.T, 1, s.B, kGates<coupled> * s.H});
  node.require_result_of(forward, 3, 7);
  node.overwrite_result_of(forward, 4, 8);
  give_gradients(node, kGates<coupled>, s);
  if constexpr (coupled) {
    node.require_floats(9, {s.T, s.B, s.fed});
    node.require_floats(10, {1, s.fed, s.H});
    node.require_floats(11, {s.T, s.B, s.fed});
    node.require_result_of(forward, 5, 6);
    node.require_result_of(forward, 0, 11);
    node.output(4, DataType::float32, {1, s.fed, s.H});
  } else {
    node.require_floats(9, {s.T, 1, s.B, s.H});
    node.require(!node.has_input(10) && !node.has_input(11), "gradients of the last states are not known");
    node.require(!node.has_output(4) && !node.has_output(5), "gradients of the first states are not known");
  }
}

}  // namespace

const OperatorTable& lstm_operators() {
  static const std::vector<const char*> attributes = {"hidden_size", "direction", "input_forget"};
  static const OperatorTable table = {
      {"LSTM", "", 7, 8, 3, attributes, check_forward<false>, make_operator<Lstm<false>>},
      {"LSTMTraining", "com.microsoft", 7, 8, 5, attributes, check_forward<false>, make_operator<Lstm<false>>},
      {"LSTMGrad", "com.microsoft", 10, 12, 6, attributes, check_gradient<false>, make_operator<LstmGradient<false>>},
      {"CIFG", "phonograd", 8, 8, 6, attributes, check_forward<true>, make_operator<Lstm<true>>},
      {"CIFGTraining", "phonograd", 8, 8, 6, attributes, check_forward<true>, make_operator<Lstm<true>>},
      {"CIFGGrad", "phonograd", 12, 12, 5, attributes, check_gradient<true>, make_operator<LstmGradient<true>>},
  };
  return table;
}

}  // namespace phonograd
