// How a node of a graph that is being made is held to what its operator expects.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace phonograd {

// Checks one node, whose inputs have types and shapes, and gives its outputs theirs. Every refusal is an
// Error(artifacts) that names file, node and operator.
class NodeChecker {
 public:
  NodeChecker(Graph& graph, int number);

  const Node& node() const { return node_; }

  [[noreturn]] void refuse(const std::string& reason) const;
  void require(bool good, const std::string& reason) const;

  bool has_input(size_t index) const;
  const Value& input(size_t index) const;  // refuses if it is left out
  const Value& typed_input(size_t index, DataType type) const;
  const Value& float_input(size_t index, size_t rank) const;
  void require_shape(size_t index, const Shape& shape) const;
  void require_floats(size_t index, const Shape& shape) const;
  // The input is result number `output` of a node of that operator, as it is in memory.
  void require_result_of(const char* op, size_t output, size_t index) const;
  // The node overwrites this result of another: the graph is refused if anything else reads it.
  void overwrite_result_of(const char* op, size_t output, size_t index);
  // The int64 values of an input that must be known while planning: an initializer, or the result of Shape.
  const std::vector<int64_t>& integers(size_t index) const;

  int64_t attribute(const char* name, int64_t otherwise) const;
  float attribute_real(const char* name, float otherwise) const;
  std::string attribute_text(const char* name, const char* otherwise) const;
  std::vector<int64_t> attribute_integers(const char* name) const;  // empty if it is not there

  bool has_output(size_t index) const;
  void output(size_t index, DataType type, const Shape& shape);
  void output_view(size_t index, size_t of_input, const Shape& shape);
  void output_integers(size_t index, const std::vector<int64_t>& values);

 private:
  const onnx::Attribute* find(const char* name, onnx::Attribute::Kind kind) const;

  Graph& graph_;
  const Node& node_;
};

}  // namespace phonograd
