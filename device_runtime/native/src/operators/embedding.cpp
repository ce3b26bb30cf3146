// Gather along the first axis, as an embedding reads it, and its gradient.
#include <algorithm>
#include <cstring>

#include "operators/operator.h"

namespace phonograd {

namespace {

class Gather : public Operator {
 public:
  explicit Gather(NodeBuilder& node) : table_(node.input(0)), ids_(node.input(1)), y_(node.output(0)) {}

  void run(Run& run) override {
    const int64_t V = table_->shape[0], E = table_->elements() / V, count = ids_->elements();
    check_ids("token", *ids_, V);
    constexpr int64_t kRows = 32;
    run.pool.for_each(divided_up(count, kRows), [&](int64_t item, int) {
      for (int64_t n = item * kRows; n < std::min(count, (item + 1) * kRows); ++n) {
        std::memcpy(y_->floats() + n * E, table_->floats() + ids_->integers()[n] * E,
                    static_cast<size_t>(E) * sizeof(float));
      }
    });
  }
  const char* phase() const override { return "embedding"; }
  std::string description() const override { return "rows of " + table_->name + " " + to_text(table_->shape); }

 private:
  Tensor *table_, *ids_, *y_;
};

void check_gather(NodeChecker& node) {
  node.require(node.attribute("axis", 0) == 0, "only axis 0 is known");
  const Shape& table = node.typed_input(0, DataType::float32).shape;
  node.require(!table.empty(), "a table without rows");
  Shape shape = node.typed_input(1, DataType::int64).shape;
  shape.insert(shape.end(), table.begin() + 1, table.end());
  node.output(0, DataType::float32, shape);
}

// The dense gradient: used where it is added to another one, as for tied embeddings. Alone it is fused into the update.
class GatherGradient : public Operator {
 public:
  explicit GatherGradient(NodeBuilder& node) : ids_(node.input(1)), dy_(node.input(2)), dx_(node.output(0)) {}

  void run(Run& run) override {
    const int64_t E = dx_->elements() / dx_->shape[0], count = ids_->elements();
    check_ids("token", *ids_, dx_->shape[0]);
    // Threads share columns, so that each element is summed in the order of the tokens.
    constexpr int64_t kColumns = 64;
    run.pool.for_each(divided_up(E, kColumns), [&](int64_t item, int) {
      const int64_t first = item * kColumns, width = std::min(kColumns, E - first);
      for (int64_t v = 0; v < dx_->shape[0]; ++v) std::fill_n(dx_->floats() + v * E + first, width, 0.0f);
      for (int64_t n = 0; n < count; ++n) {
        float* row = dx_->floats() + ids_->integers()[n] * E + first;
        for (int64_t i = 0; i < width; ++i) row[i] += dy_->floats()[n * E + first + i];
      }
    });
  }
  const char* phase() const override { return "embedding"; }
  std::string description() const override { return "gradient of rows " + to_text(dx_->shape); }

 private:
  Tensor *ids_, *dy_, *dx_;
};

void check_gather_gradient(NodeChecker& node) {
  node.require(node.attribute("axis", 0) == 0, "only axis 0 is known");
  const Shape shape = node.integers(0);
  node.require(!shape.empty(), "a table without rows");
  Shape rows = node.typed_input(1, DataType::int64).shape;
  rows.insert(rows.end(), shape.begin() + 1, shape.end());
  node.typed_input(2, DataType::float32);
  node.require_shape(2, rows);
  node.output(0, DataType::float32, shape);
}

}  // namespace

const OperatorTable& embedding_operators() {
  static const OperatorTable table = {
      {"Gather", "", 2, 2, 1, {"axis"}, check_gather, make_operator<Gather>},
      {"GatherGrad", "com.microsoft", 3, 3, 1, {"axis"}, check_gather_gradient, make_operator<GatherGradient>},
  };
  return table;
}

}  // namespace phonograd
