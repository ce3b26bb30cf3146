// Dropout. A mask is a pure function of seed, step, node and place, so it is the same on any number of threads and
// after a restart.
#include <algorithm>
#include <cstring>

#include "base/splitmix64.h"
#include "operators/operator.h"

namespace phonograd {

namespace {

constexpr int64_t kChunk = 8192;

class Dropout : public Operator {
 public:
  Dropout(Tensor* x, Tensor* ratio, Tensor* y, Tensor* mask, int node)
      : x_(x), ratio_(ratio), y_(y), mask_(mask), node_(static_cast<uint64_t>(node)) {}

  void run(Run& run) override {
    const float ratio = *ratio_->floats(), scale = 1 / (1 - ratio);
    const uint64_t threshold = static_cast<uint64_t>(static_cast<double>(ratio) * 4294967296.0);
    const uint64_t key = split_mixed(run.seed + kSplitMixStep * split_mixed(run.step + (node_ << 40) + 1));
    const int64_t count = x_->elements();
    run.pool.for_each(divided_up(count, kChunk), [&](int64_t chunk, int) {
      for (int64_t i = chunk * kChunk; i < std::min(count, (chunk + 1) * kChunk); ++i) {
        const bool kept = split_mixed(key + kSplitMixStep * static_cast<uint64_t>(i)) >> 32 >= threshold;
        if (mask_ != nullptr) mask_->booleans()[i] = kept;
        y_->floats()[i] = kept ? x_->floats()[i] * scale : 0;
      }
    });
  }
  const char* phase() const override { return "dropout"; }
  std::string description() const override { return "dropout " + to_text(x_->shape); }

 private:
  Tensor *x_, *ratio_, *y_, *mask_;
  uint64_t node_;
};

class DropoutGradient : public Operator {
 public:
  DropoutGradient(Tensor* dy, Tensor* mask, Tensor* ratio, Tensor* dx) : dy_(dy), mask_(mask), ratio_(ratio), dx_(dx) {}

  void run(Run& run) override {
    const float scale = 1 / (1 - *ratio_->floats());
    const int64_t count = dy_->elements();
    run.pool.for_each(divided_up(count, kChunk), [&](int64_t chunk, int) {
      for (int64_t i = chunk * kChunk; i < std::min(count, (chunk + 1) * kChunk); ++i) {
        dx_->floats()[i] = mask_->booleans()[i] ? dy_->floats()[i] * scale : 0;
      }
    });
  }
  const char* phase() const override { return "dropout"; }
  std::string description() const override { return "gradient of dropout " + to_text(dx_->shape); }

 private:
  Tensor *dy_, *mask_, *ratio_, *dx_;
};

// Ratio and switch are constants of the graph.
void check_settings(NodeChecker& node, size_t ratio, size_t training) {
  const Value& share = node.typed_input(ratio, DataType::float32);
  const Value& on = node.typed_input(training, DataType::boolean);
  node.require(share.constant != nullptr && element_count(share.shape) == 1, "the ratio is not a constant");
  float value = 0;
  std::memcpy(&value, share.constant->bytes.data(), sizeof value);
  node.require(value >= 0 && value < 1, "ratio " + std::to_string(value) + ", expected at least 0 and less than 1");
  node.require(on.constant != nullptr && on.constant->bytes.size() == 1 && on.constant->bytes[0] != 0,
               "dropout that is not switched on");
}

void check_dropout(NodeChecker& node) {
  check_settings(node, 1, 2);
  const Shape& shape = node.typed_input(0, DataType::float32).shape;
  node.output(0, DataType::float32, shape);
  node.output(1, DataType::boolean, shape);
}

std::unique_ptr<Operator> make_dropout(NodeBuilder& node) {
  Tensor* y = node.output(0);
  if (y == nullptr) y = node.scratch("dropped", node.input(0)->elements());  // only the mask is read
  return std::make_unique<Dropout>(node.input(0), node.input(1), y, node.output(1), node.number());
}

void check_dropout_gradient(NodeChecker& node) {
  check_settings(node, 2, 3);
  const Shape& shape = node.typed_input(0, DataType::float32).shape;
  node.typed_input(1, DataType::boolean);
  node.require_shape(1, shape);
  node.output(0, DataType::float32, shape);
}

std::unique_ptr<Operator> make_dropout_gradient(NodeBuilder& node) {
  return std::make_unique<DropoutGradient>(node.input(0), node.input(1), node.input(2), node.output(0));
}

}  // namespace

const OperatorTable& dropout_operators() {
  static const OperatorTable table = {
      {"Dropout", "", 3, 3, 2, {}, check_dropout, make_dropout},
      {"DropoutGrad", "com.microsoft", 4, 4, 1, {}, check_dropout_gradient, make_dropout_gradient},
  };
  return table;
}

}  // namespace phonograd
