// Operators that run nothing: their result is their input's memory under another shape, or a shape itself; or they
// mark a parameter's gradient (InPlaceAccumulatorV2), which the update takes from where it is.
#include <algorithm>

#include "operators/operator.h"

namespace phonograd {

namespace {

void check_identity(NodeChecker& node) {
  node.output_view(0, 0, node.input(0).shape);
  if (node.input(0).has_integers) node.output_integers(0, node.input(0).integers);
}

void check_reshape(NodeChecker& node) {
  const Value& data = node.input(0);
  Shape shape = node.integers(1);
  const bool zero_is_zero = node.attribute("allowzero", 0) != 0;
  int64_t known = 1;
  int free = -1;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0 && !zero_is_zero && i < data.shape.size()) shape[i] = data.shape[i];
    if (shape[i] == -1) {
      node.require(free < 0, "shape has more than one -1");
      free = static_cast<int>(i);
      continue;
    }
    node.require(shape[i] > 0 && shape[i] <= element_count(data.shape), "shape " + to_text(shape) + " does not fit");
    known *= shape[i];
    node.require(known <= element_count(data.shape), "shape " + to_text(shape) + " does not fit");
  }
  if (free >= 0) shape[static_cast<size_t>(free)] = element_count(data.shape) / known;
  node.output_view(0, 0, shape);
}

// Axes from the second input, counted from the front, in rising order.
std::vector<int64_t> axes_of(NodeChecker& node, size_t rank) {
  std::vector<int64_t> axes = node.integers(1);
  for (int64_t& axis : axes) {
    if (axis < 0) axis += static_cast<int64_t>(rank);
    node.require(axis >= 0 && axis < static_cast<int64_t>(rank), "axis out of range");
  }
  std::sort(axes.begin(), axes.end());
  node.require(std::adjacent_find(axes.begin(), axes.end()) == axes.end(), "an axis appears twice");
  return axes;
}

void check_squeeze(NodeChecker& node) {
  const Shape& from = node.input(0).shape;
  const std::vector<int64_t> axes = axes_of(node, from.size());
  Shape shape;
  for (size_t i = 0; i < from.size(); ++i) {
    if (!std::binary_search(axes.begin(), axes.end(), static_cast<int64_t>(i))) {
      shape.push_back(from[i]);
    } else {
      node.require(from[i] == 1, "axis " + std::to_string(i) + " of " + to_text(from) + " is not 1");
    }
  }
  node.output_view(0, 0, shape);
}

void check_unsqueeze(NodeChecker& node) {
  const Shape& from = node.input(0).shape;
  const std::vector<int64_t> axes = axes_of(node, from.size() + node.integers(1).size());
  Shape shape = from;
  for (int64_t axis : axes) shape.insert(shape.begin() + axis, 1);
  node.output_view(0, 0, shape);
}

void check_shape(NodeChecker& node) {
  node.require(node.attribute("start", 0) == 0, "attribute 'start' is not 0");
  node.output_integers(0, node.input(0).shape);
}

void check_mark(NodeChecker& node) {
  const Shape& shape = node.typed_input(0, DataType::float32).shape;
  node.typed_input(1, DataType::float32);
  node.require_shape(1, shape);
  node.output(0, DataType::undefined, {1});  // nothing writes it, so nothing may read it
}

}  // namespace

const OperatorTable& view_operators() {
  static const OperatorTable table = {
      {"Identity", "", 1, 1, 1, {}, check_identity, nullptr},
      {"Reshape", "", 2, 2, 1, {"allowzero"}, check_reshape, nullptr},
      {"Squeeze", "", 2, 2, 1, {}, check_squeeze, nullptr},
      {"Unsqueeze", "", 2, 2, 1, {}, check_unsqueeze, nullptr},
      {"Shape", "", 1, 1, 1, {"start"}, check_shape, nullptr},
      {"InPlaceAccumulatorV2", "com.microsoft", 2, 3, 1, {}, check_mark, nullptr},
  };
  return table;
}

}  // namespace phonograd
