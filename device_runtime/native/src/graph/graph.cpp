#include "graph/graph.h"

#include <cstring>
#include <utility>

#include "graph/node_checker.h"

namespace phonograd {

int64_t element_count(const Shape& shape) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return count;
}

std::string to_text(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ",") + std::to_string(shape[i]);
  return text + "]";
}

namespace {

Shape shape_with(const onnx::Model& model, const onnx::ValueInfo& info, const FreeSizes& sizes) {
  Shape shape;
  int64_t elements = 1;
  for (const onnx::Dimension& dimension : info.shape) {
    int64_t size = dimension.size;
    if (size < 0) {
      const auto found = sizes.find(dimension.name);
      if (found == sizes.end()) {
        throw Error(Status::artifacts, model.path + ": input '" + info.name + "' has the free dimension '" +
                                           dimension.name + "'; expected a number; export the artifacts again");
      }
      size = found->second;
    }
    if (size < 1 || size > kMostElements / elements) {
      throw Error(Status::artifacts, model.path + ": input '" + info.name + "' has a dimension of " +
                                         std::to_string(size) +
                                         "; expected at least 1 and at most 2^31 elements in all");
    }
    elements *= size;
    shape.push_back(size);
  }
  return shape;
}

}  // namespace

int Graph::add_value(const std::string& name) {
  const int number = static_cast<int>(values_.size());
  if (!numbers_.emplace(name, number).second) {
    throw Error(Status::artifacts, path() + ": value '" + name + "' is produced twice; export the artifacts again");
  }
  values_.emplace_back();
  values_.back().name = name;
  return number;
}

int Graph::find(const std::string& name) const {
  const auto found = numbers_.find(name);
  return found == numbers_.end() ? -1 : found->second;
}

int Graph::root(int number) const {
  return value(number).view_of >= 0 ? value(number).view_of : number;
}

std::vector<int> Graph::users(int number) const {
  std::vector<int> found, views = {number};
  for (size_t i = 0; i < views.size(); ++i) {
    const int view = views[i];
    for (int consumer : value(view).consumers) {
      const int made = node(consumer).outputs[0];
      if (made >= 0 && value(made).has_integers) continue;
      bool is_view = false;
      for (int output : node(consumer).outputs) {
        if (output < 0 || value(output).view_of != root(number)) continue;
        is_view = true;
        views.push_back(output);
      }
      if (!is_view) found.push_back(consumer);
    }
  }
  return found;
}

Graph::Graph(onnx::Model model, const FreeSizes& sizes, CheckNode check) : model_(std::move(model)) {
  for (const onnx::Constant& constant : model_.constants) {
    Value& value = values_[static_cast<size_t>(add_value(constant.name))];
    value.type = constant.type;
    value.shape = constant.shape;
    value.constant = &constant;
    if (constant.type != DataType::int64 && constant.bytes.empty()) {
      throw Error(Status::artifacts, path() + ": initializer '" + constant.name + "' " + to_text(constant.shape) +
                                         " is empty; export the artifacts again");
    }
    if (constant.type == DataType::int64) {
      value.has_integers = true;
      value.integers.resize(constant.bytes.size() / sizeof(int64_t));
      std::memcpy(value.integers.data(), constant.bytes.data(), value.integers.size() * sizeof(int64_t));
    }
  }
  for (const onnx::ValueInfo& info : model_.inputs) {
    if (numbers_.count(info.name) != 0) continue;  // an initializer may be named as an input too
    Value& value = values_[static_cast<size_t>(add_value(info.name))];
    value.type = info.type;
    value.is_input = true;
    if (size_of(info.type) == 0 || !info.has_shape) {
      throw Error(Status::artifacts,
                  path() + ": input '" + info.name + "' has no shape or a type other than float32, int64 and bool");
    }
    value.shape = shape_with(model_, info, sizes);
  }
  nodes_.reserve(model_.nodes.size());
  for (const onnx::Node& source : model_.nodes) {
    const int number = static_cast<int>(nodes_.size());
    Node node;
    node.source = &source;
    for (const std::string& name : source.inputs) {
      const int input = name.empty() ? -1 : find(name);
      if (!name.empty() && input < 0) {
        throw Error(Status::artifacts, path() + ": node '" + source.name + "' (" + source.op + ") reads '" + name +
                                           "', which no earlier node produces; export the artifacts again");
      }
      node.inputs.push_back(input);
      if (input >= 0) values_[static_cast<size_t>(input)].consumers.push_back(number);
    }
    for (const std::string& name : source.outputs) {
      node.outputs.push_back(name.empty() ? -1 : add_value(name));
      if (!name.empty()) values_.back().producer = number;
    }
    nodes_.push_back(std::move(node));
    NodeChecker checker(*this, number);
    check(checker);
  }
  for (const onnx::ValueInfo& info : model_.outputs) {
    const int output = find(info.name);
    if (output < 0) throw Error(Status::artifacts, path() + ": output '" + info.name + "' is not produced by any node");
    for (const int shown : {output, root(output)}) values_[static_cast<size_t>(shown)].is_output = true;
  }
  check_overwritten();
}

void Graph::check_overwritten() const {
  for (const Value& value : values_) {
    if (!value.is_overwritten || (value.consumers.size() == 1 && !value.is_output)) continue;
    throw Error(Status::artifacts, path() + ": value '" + value.name +
                                       "' is overwritten by the node that reads it, and read by another node or as an "
                                       "output; export the artifacts again");
  }
}

}  // namespace phonograd
