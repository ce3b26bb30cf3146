#include "graph/node_checker.h"

namespace phonograd {

NodeChecker::NodeChecker(Graph& graph, int number) : graph_(graph), node_(graph.node(number)) {}

void NodeChecker::refuse(const std::string& reason) const {
  const onnx::Node& source = *node_.source;
  throw Error(Status::artifacts, graph_.path() + ": node '" + source.name + "' (" +
                                     (source.domain.empty() ? "" : source.domain + ".") + source.op + "): " + reason);
}

void NodeChecker::require(bool good, const std::string& reason) const {
  if (!good) refuse(reason);
}

bool NodeChecker::has_input(size_t index) const {
  return index < node_.inputs.size() && node_.inputs[index] >= 0;
}

const Value& NodeChecker::input(size_t index) const {
  require(has_input(index), "input " + std::to_string(index) + " is left out");
  return graph_.value(node_.inputs[index]);
}

const Value& NodeChecker::typed_input(size_t index, DataType type) const {
  const Value& value = input(index);
  require(value.type == type, "input '" + value.name + "' has data type " +
                                  std::to_string(static_cast<int>(value.type)) + ", expected " +
                                  std::to_string(static_cast<int>(type)));
  return value;
}

const Value& NodeChecker::float_input(size_t index, size_t rank) const {
  const Value& value = typed_input(index, DataType::float32);
  require(value.shape.size() == rank, "input '" + value.name + "' has shape " + to_text(value.shape) + ", expected " +
                                          std::to_string(rank) + " dimensions");
  return value;
}

void NodeChecker::require_shape(size_t index, const Shape& shape) const {
  const Value& value = input(index);
  require(value.shape == shape,
          "input '" + value.name + "' has shape " + to_text(value.shape) + ", expected " + to_text(shape));
}

void NodeChecker::require_floats(size_t index, const Shape& shape) const {
  typed_input(index, DataType::float32);
  require_shape(index, shape);
}

void NodeChecker::require_result_of(const char* op, size_t output, size_t index) const {
  const Value& value = input(index);
  const bool made = value.producer >= 0 && graph_.node(value.producer).source->op == op;
  require(made && output < graph_.node(value.producer).outputs.size() &&
              graph_.node(value.producer).outputs[output] == node_.inputs[index],
          "input '" + value.name + "' is not output " + std::to_string(output) + " of a node " + op);
}

void NodeChecker::overwrite_result_of(const char* op, size_t output, size_t index) {
  require_result_of(op, output, index);
  graph_.values_[static_cast<size_t>(node_.inputs[index])].is_overwritten = true;
}

const std::vector<int64_t>& NodeChecker::integers(size_t index) const {
  const Value& value = typed_input(index, DataType::int64);
  require(value.has_integers, "input '" + value.name + "' must be a constant or a shape");
  return value.integers;
}

const onnx::Attribute* NodeChecker::find(const char* name, onnx::Attribute::Kind kind) const {
  const onnx::Attribute* found = node_.source->find(name);
  require(found == nullptr || found->kind == kind,
          std::string("attribute '") + name + "' has another type than expected");
  return found;
}

int64_t NodeChecker::attribute(const char* name, int64_t otherwise) const {
  const onnx::Attribute* found = find(name, onnx::Attribute::Kind::integer);
  return found == nullptr ? otherwise : found->integer;
}

float NodeChecker::attribute_real(const char* name, float otherwise) const {
  const onnx::Attribute* found = find(name, onnx::Attribute::Kind::real);
  return found == nullptr ? otherwise : found->real;
}

std::string NodeChecker::attribute_text(const char* name, const char* otherwise) const {
  const onnx::Attribute* found = find(name, onnx::Attribute::Kind::text);
  return found == nullptr ? otherwise : found->text;
}

std::vector<int64_t> NodeChecker::attribute_integers(const char* name) const {
  const onnx::Attribute* found = find(name, onnx::Attribute::Kind::integers);
  return found == nullptr ? std::vector<int64_t>{} : found->integers;
}

bool NodeChecker::has_output(size_t index) const {
  return index < node_.outputs.size() && node_.outputs[index] >= 0;
}

void NodeChecker::output(size_t index, DataType type, const Shape& shape) {
  int64_t elements = 1;
  for (int64_t size : shape) {
    require(size >= 1 && size <= kMostElements / elements,
            "result " + to_text(shape) + ", expected at least 1 and at most 2^31 elements");
    elements *= size;
  }
  if (!has_output(index)) return;
  Value& value = graph_.values_[static_cast<size_t>(node_.outputs[index])];
  value.type = type;
  value.shape = shape;
}

void NodeChecker::output_view(size_t index, size_t of_input, const Shape& shape) {
  const Value& source = input(of_input);
  require(element_count(shape) == element_count(source.shape),
          "a view " + to_text(shape) + " of '" + source.name + "' " + to_text(source.shape));
  output(index, source.type, shape);
  if (has_output(index)) {
    graph_.values_[static_cast<size_t>(node_.outputs[index])].view_of = graph_.root(node_.inputs[of_input]);
  }
}

void NodeChecker::output_integers(size_t index, const std::vector<int64_t>& values) {
  if (!has_output(index)) return;
  Value& value = graph_.values_[static_cast<size_t>(node_.outputs[index])];
  value.type = DataType::int64;
  value.shape = {static_cast<int64_t>(values.size())};
  value.has_integers = true;
  value.integers = values;
}

}  // namespace phonograd
