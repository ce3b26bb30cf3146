// Softmax, its logarithm, cross-entropy, and their gradients, over the rows of [N, V].
#include <algorithm>
#include <cmath>

#include "operators/operator.h"

namespace phonograd {

namespace {

class Softmax : public Operator {
 public:
  Softmax(Tensor* x, Tensor* y, bool logarithm) : x_(x), y_(y), logarithm_(logarithm) {}

  void run(Run& run) override {
    const int64_t V = x_->shape.back();
    run.pool.for_each(x_->elements() / V, [&](int64_t n, int) {
      const float* x = x_->floats() + n * V;
      float *y = y_->floats() + n * V, highest;
      const double exponentials = run.kernels.sum_of_exponentials(static_cast<size_t>(V), x, &highest);
      const float sum = highest + static_cast<float>(std::log(exponentials));
      for (int64_t v = 0; v < V; ++v) y[v] = x[v] - sum;
      if (!logarithm_) run.kernels.exponential(y, y, static_cast<size_t>(V));
    });
  }
  const char* phase() const override { return "softmax"; }
  std::string description() const override { return (logarithm_ ? "log-softmax " : "softmax ") + to_text(x_->shape); }

 private:
  Tensor *x_, *y_;
  bool logarithm_;
};

// dx = dy - softmax * sum(dy) from y = log softmax; dx = y (dy - sum(dy y)) from y = softmax.
class SoftmaxGradient : public Operator {
 public:
  SoftmaxGradient(Tensor* dy, Tensor* y, Tensor* dx, bool logarithm) : dy_(dy), y_(y), dx_(dx), logarithm_(logarithm) {}

  void run(Run& run) override {
    const int64_t V = y_->shape.back();
    run.pool.for_each(y_->elements() / V, [&](int64_t n, int) {
      const float *y = y_->floats() + n * V, *dy = dy_->floats() + n * V;
      float* dx = dx_->floats() + n * V;
      double total = 0;
      for (int64_t v = 0; v < V; ++v) total += static_cast<double>(logarithm_ ? dy[v] : dy[v] * y[v]);
      const float sum = static_cast<float>(total);
      constexpr int64_t kPiece = 512;
      float softmax[kPiece];
      for (int64_t first = 0; first < V; first += kPiece) {
        const int64_t count = std::min(kPiece, V - first);
        if (logarithm_) run.kernels.exponential(y + first, softmax, static_cast<size_t>(count));
        for (int64_t i = 0; i < count; ++i) {
          dx[first + i] = logarithm_ ? dy[first + i] - softmax[i] * sum : y[first + i] * (dy[first + i] - sum);
        }
      }
    });
  }
  const char* phase() const override { return "softmax"; }
  std::string description() const override {
    return std::string("gradient of ") + (logarithm_ ? "log-softmax " : "softmax ") + to_text(y_->shape);
  }

 private:
  Tensor *dy_, *y_, *dx_;
  bool logarithm_;
};

void require_last_axis(NodeChecker& node, const Value& value) {
  const int64_t rank = static_cast<int64_t>(value.shape.size()), axis = node.attribute("axis", -1);
  node.require(rank >= 1 && (axis == -1 || axis == rank - 1),
               "only the last axis is known, found " + std::to_string(axis));
}

void check_softmax(NodeChecker& node) {
  require_last_axis(node, node.typed_input(0, DataType::float32));
  node.output(0, DataType::float32, node.input(0).shape);
}

template <bool logarithm>
std::unique_ptr<Operator> make_softmax(NodeBuilder& node) {
  return std::make_unique<Softmax>(node.input(0), node.output(0), logarithm);
}

void check_softmax_gradient(NodeChecker& node) {
  require_last_axis(node, node.typed_input(1, DataType::float32));
  node.require_shape(1, node.typed_input(0, DataType::float32).shape);
  node.output(0, DataType::float32, node.input(0).shape);
}

template <bool logarithm>
std::unique_ptr<Operator> make_softmax_gradient(NodeBuilder& node) {
  return std::make_unique<SoftmaxGradient>(node.input(0), node.input(1), node.output(0), logarithm);
}

// The number of targets that count.
int64_t count_targets(const Tensor& targets, int64_t ignored) {
  const int64_t* begin = targets.integers();
  return targets.elements() - std::count(begin, begin + targets.elements(), ignored);
}

class CrossEntropy : public Operator {
 public:
  CrossEntropy(NodeBuilder& node)
      : logits_(node.input(0)),
        targets_(node.input(1)),
        loss_(node.output(0) != nullptr ? node.output(0) : node.scratch("loss", 1)),
        log_p_(node.output(1) != nullptr ? node.output(1) : node.scratch("log p", node.input(0)->elements())),
        ignored_(node.source().integer("ignore_index", -1)),
        mean_(node.source().text("reduction", "mean") == "mean"),
        softmax_(logits_, log_p_, true) {}

  void run(Run& run) override {
    const int64_t V = logits_->shape[1], N = logits_->shape[0];
    check_ids("target", *targets_, V, &ignored_);
    softmax_.run(run);
    double total = 0;
    for (int64_t n = 0; n < N; ++n) {
      const int64_t target = targets_->integers()[n];
      if (target != ignored_) total -= static_cast<double>(log_p_->floats()[n * V + target]);
    }
    *loss_->floats() =
        static_cast<float>(mean_ ? total / static_cast<double>(count_targets(*targets_, ignored_)) : total);
  }
  const char* phase() const override { return "softmax"; }
  std::string description() const override { return "cross-entropy " + to_text(logits_->shape); }

 private:
  Tensor *logits_, *targets_, *loss_, *log_p_;
  int64_t ignored_;
  bool mean_;
  Softmax softmax_;
};

void check_loss_attributes(NodeChecker& node) {
  const std::string reduction = node.attribute_text("reduction", "mean");
  node.require(reduction == "mean" || reduction == "sum", "reduction '" + reduction + "', expected mean or sum");
  node.attribute("ignore_index", -1);
}

void check_cross_entropy(NodeChecker& node) {
  check_loss_attributes(node);
  const Shape& logits = node.float_input(0, 2).shape;
  node.typed_input(1, DataType::int64);
  node.require_shape(1, {logits[0]});
  node.output(0, DataType::float32, {});
  node.output(1, DataType::float32, logits);
}

// dlogits = (exp(log p) - onehot) * dy, and divided by the count for a mean; zero where ignored.
class CrossEntropyGradient : public Operator {
 public:
  CrossEntropyGradient(NodeBuilder& node)
      : dy_(node.input(0)),
        log_p_(node.input(1)),
        targets_(node.input(2)),
        dx_(node.output(0)),
        ignored_(node.source().integer("ignore_index", -1)),
        mean_(node.source().text("reduction", "mean") == "mean") {}

  void run(Run& run) override {
    const int64_t V = log_p_->shape[1];
    check_ids("target", *targets_, V, &ignored_);
    const int64_t count = mean_ ? std::max<int64_t>(1, count_targets(*targets_, ignored_)) : 1;
    const float scale = *dy_->floats() / static_cast<float>(count);
    run.pool.for_each(log_p_->shape[0], [&](int64_t n, int) {
      float* dx = dx_->floats() + n * V;
      const int64_t target = targets_->integers()[n];
      if (target == ignored_) {
        std::fill(dx, dx + V, 0.0f);
        return;
      }
      run.kernels.exponential(log_p_->floats() + n * V, dx, static_cast<size_t>(V));
      dx[target] -= 1;
      for (int64_t v = 0; v < V; ++v) dx[v] *= scale;
    });
  }
  const char* phase() const override { return "softmax"; }
  std::string description() const override { return "gradient of cross-entropy " + to_text(log_p_->shape); }

 private:
  Tensor *dy_, *log_p_, *targets_, *dx_;
  int64_t ignored_;
  bool mean_;
};

void check_cross_entropy_gradient(NodeChecker& node) {
  check_loss_attributes(node);
  node.require(element_count(node.typed_input(0, DataType::float32).shape) == 1,
               "the gradient of the loss is not one number");
  const Shape& log_p = node.float_input(1, 2).shape;
  node.typed_input(2, DataType::int64);
  node.require_shape(2, {log_p[0]});
  node.output(0, DataType::float32, log_p);
}

}  // namespace

const OperatorTable& loss_operators() {
  static const OperatorTable table = {
      {"Softmax", "", 1, 1, 1, {"axis"}, check_softmax, make_softmax<false>},
      {"LogSoftmax", "", 1, 1, 1, {"axis"}, check_softmax, make_softmax<true>},
      {"SoftmaxGrad_13", "com.microsoft", 2, 2, 1, {"axis"}, check_softmax_gradient, make_softmax_gradient<false>},
      {"LogSoftmaxGrad_13", "com.microsoft", 2, 2, 1, {"axis"}, check_softmax_gradient, make_softmax_gradient<true>},
      {"SoftmaxCrossEntropyLoss",
       "",
       2,
       2,
       2,
       {"ignore_index", "reduction"},
       check_cross_entropy,
       make_operator<CrossEntropy>},
      {"SoftmaxCrossEntropyLossGrad",
       "com.microsoft",
       3,
       3,
       1,
       {"ignore_index", "reduction"},
       check_cross_entropy_gradient,
       make_operator<CrossEntropyGradient>},
  };
  return table;
}

}  // namespace phonograd
