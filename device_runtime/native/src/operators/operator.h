// What an operator is to the engine: how a node of it is checked, and what runs it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "graph/node_checker.h"
#include "kernels/gemm.h"

namespace phonograd {

// A value's memory while the engine runs. `data` is set once, before the first run.
struct Tensor {
  std::string name;
  DataType type = DataType::float32;
  Shape shape;
  void* data = nullptr;

  int64_t elements() const { return element_count(shape); }
  size_t bytes() const { return static_cast<size_t>(elements()) * size_of(type); }
  float* floats() const { return static_cast<float*>(data); }
  int64_t* integers() const { return static_cast<int64_t*>(data); }
  uint8_t* booleans() const { return static_cast<uint8_t*>(data); }
};

// Throws Error(training), naming the first id that is neither in [0, below) nor, if given, `ignored`.
void check_ids(const char* what, const Tensor& ids, int64_t below, const int64_t* ignored = nullptr);

// What a run hands to every operator.
struct Run {
  ThreadPool& pool;
  const KernelSet& kernels;
  Products& products;  // on that pool, by these kernels
  float learning_rate = 0;
  uint64_t seed = 0;
  uint64_t step = 0;
};

// A parameter's gradient left as a product, sum over the N tokens of D[m, n] X[n, k]: the update adds it straight to
// the parameter [M, K], so that it is never stored. Element (m, n) of D is d->floats()[m * d_row + n * d_column].
struct Factors {
  Tensor* d = nullptr;
  ptrdiff_t d_row = 0, d_column = 0;
  Tensor* x = nullptr;  // [N, K], row-major
  int64_t M = 0, N = 0, K = 0;
  Tensor* gram = nullptr;  // D^T D [N, N] above the diagonal, where an operator has it
};

// Whether a gradient is smaller than its factors. Its norm then costs less after the product than from the factors.
inline bool smaller_than_factors(int64_t M, int64_t N, int64_t K) {
  return M * K < N * (M + K);
}

// One planned piece of work. It holds the tensors it reads and writes; run() allocates nothing and does not throw,
// except Error(training) for token ids that are out of range, before anything is changed.
class Operator {
 public:
  virtual ~Operator() = default;
  virtual void run(Run& run) = 0;
  // For the plan: the phase it counts under, and what it does.
  virtual const char* phase() const { return "other"; }
  virtual std::string description() const = 0;
  // The gradient that output `index` would hold, for an operator that was made without that output.
  virtual Factors factors(size_t index) const;
};

// What an operator is made from: the node, its tensors, and scratch memory that lives while it runs.
class NodeBuilder {
 public:
  virtual ~NodeBuilder() = default;
  virtual Tensor* input(size_t index) = 0;   // nullptr if it is left out
  virtual Tensor* output(size_t index) = 0;  // nullptr if it is left out, or nobody reads it
  virtual Tensor* scratch(const std::string& name, int64_t floats) = 0;
  virtual Tensor* step_scratch(const std::string& name, int64_t floats) = 0;  // kept until the step has ended
  virtual int number() const = 0;
  virtual const onnx::Node& source() const = 0;
  virtual const std::vector<int64_t>& integers(size_t index) const = 0;  // as NodeChecker's
  virtual const Products& products() const = 0;
};

template <typename Kind>
std::unique_ptr<Operator> make_operator(NodeBuilder& node) {
  return std::make_unique<Kind>(node);
}

struct OperatorType {
  const char* name;
  const char* domain;
  size_t fewest_inputs, most_inputs, most_outputs;
  std::vector<const char*> attributes;
  void (*check)(NodeChecker& node);
  // nullptr for a view or a constant: nothing runs.
  std::unique_ptr<Operator> (*make)(NodeBuilder& node);
};

// nullptr for an operator that the engine does not know.
const OperatorType* find_operator(const std::string& name, const std::string& domain);

// A graph's CheckNode: operator, arity, attributes, and what the operator's own check holds the node to.
void check_node(NodeChecker& node);

// The tables that operators/*.cpp give, joined by find_operator.
using OperatorTable = std::vector<OperatorType>;
const OperatorTable& view_operators();
const OperatorTable& elementwise_operators();
const OperatorTable& reduction_operators();
const OperatorTable& product_operators();
const OperatorTable& loss_operators();
const OperatorTable& embedding_operators();
const OperatorTable& dropout_operators();
const OperatorTable& lstm_operators();
const OperatorTable& gru_operators();

}  // namespace phonograd
