// A graph as the planner sees it: values by number, shapes known, views resolved.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "formats/onnx_model.h"

namespace phonograd {

using Shape = std::vector<int64_t>;
using onnx::DataType;

// Larger than any tensor a phone could hold; keeps products of sizes far from overflow.
constexpr int64_t kMostElements = int64_t{1} << 31;

int64_t element_count(const Shape& shape);
std::string to_text(const Shape& shape);

struct Value {
  std::string name;
  DataType type = DataType::undefined;
  Shape shape;
  bool is_input = false;   // bound from outside: parameters, states, tokens
  bool is_output = false;  // read from outside, by itself or as a view
  const onnx::Constant* constant = nullptr;
  bool has_integers = false;      // int64 values known while planning: shapes and axes
  std::vector<int64_t> integers;  // these
  int producer = -1;              // number of a node; -1 without
  std::vector<int> consumers;     // numbers of nodes, once for each use
  int view_of = -1;               // the value whose memory this one is; no view itself
  bool is_overwritten = false;    // by the node that reads it
};

struct Node {
  const onnx::Node* source = nullptr;
  std::vector<int> inputs;   // numbers of values, -1 where an optional one is left out
  std::vector<int> outputs;  // likewise
};

// Sizes for the names of free dimensions, such as T and B of an evaluation graph.
using FreeSizes = std::map<std::string, int64_t>;

// Holds one node to what its operator expects, and gives its outputs types and shapes. Throws Error(artifacts).
class NodeChecker;
using CheckNode = void (*)(NodeChecker& node);

// Owns the model it was made from. Immutable once made.
class Graph {
 public:
  // `check` is called for every node in order and infers all types and shapes; operators' `check_node` is the engine's.
  // Throws Error(artifacts) naming file, node and operator for whatever that does not know: operator, attribute, shape.
  Graph(onnx::Model model, const FreeSizes& sizes, CheckNode check);
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  const std::string& path() const { return model_.path; }
  const std::vector<Value>& values() const { return values_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  const Value& value(int number) const { return values_[static_cast<size_t>(number)]; }
  const Node& node(int number) const { return nodes_[static_cast<size_t>(number)]; }
  int find(const std::string& name) const;  // -1 if it is missing
  int root(int value) const;                // whose memory it is
  // Uses of a value's memory: its own consumers and those of all views of it, views themselves left out, and those that
  // need its shape only.
  std::vector<int> users(int value) const;

 private:
  friend class NodeChecker;
  int add_value(const std::string& name);
  void check_overwritten() const;

  onnx::Model model_;
  std::vector<Value> values_;
  std::vector<Node> nodes_;
  std::map<std::string, int> numbers_;
};

}  // namespace phonograd
