// ReduceSum over neighbouring axes: data as [outer, reduced, inner].
#include <algorithm>

#include "operators/operator.h"

namespace phonograd {

namespace {

class ReduceSum : public Operator {
 public:
  ReduceSum(Tensor* x, Tensor* y, int64_t reduced, int64_t inner) : x_(x), y_(y), reduced_(reduced), inner_(inner) {}

  void run(Run& run) override {
    const int64_t outer = x_->elements() / (reduced_ * inner_);
    const int64_t block = std::min<int64_t>(inner_, 1024), blocks = divided_up(inner_, block);
    run.pool.for_each(outer * blocks, [&](int64_t item, int) {
      const int64_t first = item % blocks * block, end = std::min(inner_, first + block);
      const float* x = x_->floats() + item / blocks * reduced_ * inner_;
      float* y = y_->floats() + item / blocks * inner_;
      if (inner_ == 1) {
        double total = 0;  // long sums of one number, such as a loss over the vocabulary
        for (int64_t r = 0; r < reduced_; ++r) total += static_cast<double>(x[r]);
        y[0] = static_cast<float>(total);
        return;
      }
      std::fill(y + first, y + end, 0.0f);
      for (int64_t r = 0; r < reduced_; ++r) {
        for (int64_t i = first; i < end; ++i) y[i] += x[r * inner_ + i];
      }
    });
  }
  std::string description() const override { return "sum " + to_text(x_->shape) + " to " + to_text(y_->shape); }

 private:
  Tensor *x_, *y_;
  int64_t reduced_, inner_;
};

// [first, end) of the axes summed over; all of them if none is given.
struct Axes {
  size_t first, end;
};

Axes axes_of(const Shape& shape, const std::vector<int64_t>& given, bool& good) {
  if (given.empty()) return {0, shape.size()};
  std::vector<int64_t> axes = given;
  const auto rank = static_cast<int64_t>(shape.size());
  for (int64_t& axis : axes) axis += axis < 0 ? rank : 0;
  std::sort(axes.begin(), axes.end());
  good = axes.front() >= 0 && axes.back() < rank;
  for (size_t i = 1; good && i < axes.size(); ++i) good = axes[i] == axes[i - 1] + 1;
  return {static_cast<size_t>(axes.front()), static_cast<size_t>(axes.back()) + 1};
}

void check(NodeChecker& node) {
  const Shape& shape = node.typed_input(0, DataType::float32).shape;
  const std::vector<int64_t> given = node.has_input(1) ? node.integers(1) : std::vector<int64_t>{};
  node.require(!given.empty() || node.attribute("noop_with_empty_axes", 0) == 0, "a sum over no axes");
  bool good = true;
  const Axes axes = axes_of(shape, given, good);
  node.require(good, "axes " + to_text(given) + " of " + to_text(shape) + " are not neighbours");
  const bool keep = node.attribute("keepdims", 1) != 0;
  Shape result;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i < axes.first || i >= axes.end) {
      result.push_back(shape[i]);
    } else if (keep) {
      result.push_back(1);
    }
  }
  node.output(0, DataType::float32, result);
}

std::unique_ptr<Operator> make(NodeBuilder& node) {
  bool good = true;
  const Shape& shape = node.input(0)->shape;
  const Axes axes = axes_of(shape, node.input(1) != nullptr ? node.integers(1) : std::vector<int64_t>{}, good);
  int64_t reduced = 1, inner = 1;
  for (size_t i = axes.first; i < shape.size(); ++i) (i < axes.end ? reduced : inner) *= shape[i];
  return std::make_unique<ReduceSum>(node.input(0), node.output(0), reduced, inner);
}

}  // namespace

const OperatorTable& reduction_operators() {
  static const OperatorTable table = {
      {"ReduceSum", "", 1, 2, 1, {"keepdims", "noop_with_empty_axes"}, check, make},
  };
  return table;
}

}  // namespace phonograd
