// InPlaceAccumulatorV2 marks a parameter's gradient; nothing runs for it, because the update takes gradients from where
// they are.
#include "operators/operator.h"

namespace phonograd {

namespace {

void check(NodeChecker& node) {
  const Shape& shape = node.typed_input(0, DataType::float32).shape;
  node.typed_input(1, DataType::float32);
  node.require_shape(1, shape);
  node.output(0, DataType::boolean, {1});
}

}  // namespace

const OperatorTable& gradient_operators() {
  static const OperatorTable table = {
      {"InPlaceAccumulatorV2", "com.microsoft", 2, 3, 1, {}, check, nullptr},
  };
  return table;
}

}  // namespace phonograd
