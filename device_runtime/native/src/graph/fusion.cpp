#include "graph/fusion.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>

namespace phonograd {

namespace {

constexpr const char* kMark = "InPlaceAccumulatorV2";  // inputs: a buffer, the gradient
constexpr std::string_view kBufferSuffix = "_grad.accumulation.buffer";

const onnx::Node& source(const Graph& graph, int node) {
  return *graph.node(node).source;
}

bool is(const Graph& graph, int node, const char* op) {
  return source(graph, node).op == op;
}

int input(const Graph& graph, int node, size_t index) {
  const std::vector<int>& inputs = graph.node(node).inputs;
  return index < inputs.size() ? inputs[index] : -1;
}

int root_of_input(const Graph& graph, int node, size_t index) {
  const int value = input(graph, node, index);
  return value < 0 ? -1 : graph.root(value);
}

int output(const Graph& graph, int node, size_t index) {
  const std::vector<int>& outputs = graph.node(node).outputs;
  return index < outputs.size() ? outputs[index] : -1;
}

// The only node that reads a value's memory, or -1.
int only_user(const Graph& graph, int value) {
  if (value < 0 || graph.value(value).is_output) return -1;
  const std::vector<int> users = graph.users(value);
  return users.size() == 1 ? users[0] : -1;
}

bool goes_to_the_update(const Graph& graph, int value) {
  const int user = only_user(graph, value);
  return user >= 0 && is(graph, user, kMark);
}

// Whether a value goes to the update, by itself or as a term of what does.
bool is_left_to_the_update(const std::vector<MarkedGradient>& gradients, int value) {
  for (const MarkedGradient& gradient : gradients) {
    for (const GradientTerm& term : gradient.terms) {
      if (term.value == value) return true;
    }
  }
  return false;
}

// Whether both are the same memory in the same shape.
bool same(const Graph& graph, int value, int other) {
  return value >= 0 && other >= 0 && graph.root(value) == graph.root(other) &&
         graph.value(value).shape == graph.value(other).shape;
}

bool plain_gemm(const Graph& graph, int node, int64_t a_transposed, int64_t b_transposed) {
  const onnx::Node& gemm = source(graph, node);
  return gemm.op == "Gemm" && gemm.integer("transA", 0) == a_transposed && gemm.integer("transB", 0) == b_transposed &&
         gemm.real("alpha", 1) == 1;
}

// The parameter that the buffer of a marked gradient is named after, or -1.
int parameter_of(const Graph& graph, const Node& mark) {
  const std::string& buffer = graph.value(mark.inputs[0]).name;
  if (buffer.size() <= kBufferSuffix.size()) return -1;
  const size_t length = buffer.size() - kBufferSuffix.size();
  if (buffer.compare(length, kBufferSuffix.size(), kBufferSuffix) != 0) return -1;
  const int parameter = graph.find(buffer.substr(0, length));
  return parameter >= 0 && graph.value(parameter).shape == graph.value(mark.inputs[1]).shape ? parameter : -1;
}

// The parameters that the update changes, one after another.
std::set<int> updated_parameters(const Graph& graph) {
  std::set<int> updated;
  for (int node = 0; node < static_cast<int>(graph.nodes().size()); ++node) {
    if (is(graph, node, kMark)) updated.insert(parameter_of(graph, graph.node(node)));
  }
  return updated;
}

// Whether the update may multiply by the value, N tokens by some features: no parameter, which it may have changed by
// then, and few enough tokens for norms from N x N products.
bool is_factor(const Graph& graph, const std::set<int>& updated, int value) {
  constexpr int64_t kMostTokens = 1 << 16;
  const Shape& shape = graph.value(value).shape;
  return updated.count(graph.root(value)) == 0 && element_count(shape) / shape.back() <= kMostTokens;
}

// A product of D^T and X alone, [M, N] and [N, K].
bool is_outer_product(const Graph& graph, int node) {
  return plain_gemm(graph, node, 1, 0) && input(graph, node, 2) < 0;
}

bool is_sum_of_rows(const Graph& graph, int node) {
  const int axes = input(graph, node, 1);
  return is(graph, node, "ReduceSum") && axes >= 0 && graph.value(axes).integers == std::vector<int64_t>{0};
}

// The layer around one loss node, or false.
bool match(const Graph& graph, const std::vector<MarkedGradient>& gradients, const std::set<int>& updated, int loss,
           OutputLayer& layer) {
  const int logits = root_of_input(graph, loss, 0), product = graph.value(logits).producer;
  if (product < 0 || !plain_gemm(graph, product, 0, 1) || only_user(graph, logits) != loss) return false;
  layer.hidden = input(graph, product, 0);
  layer.weight = root_of_input(graph, product, 1);
  layer.bias = input(graph, product, 2);
  if (!graph.value(layer.weight).is_input || !same(graph, layer.weight, input(graph, product, 1))) return false;
  if (!same(graph, logits, input(graph, loss, 0)) || !is_factor(graph, updated, layer.hidden)) return false;
  const Shape of_bias = {graph.value(layer.weight).shape[0]};
  if (layer.bias >= 0 && (graph.value(layer.bias).shape != of_bias || source(graph, product).real("beta", 1) != 1)) {
    return false;
  }
  const int log_p = output(graph, loss, 1), gradient = only_user(graph, log_p);
  if (gradient < 0 || !is(graph, gradient, "SoftmaxCrossEntropyLossGrad")) return false;
  if (!same(graph, log_p, input(graph, gradient, 1)) || output(graph, loss, 0) < 0) return false;
  layer.targets = input(graph, loss, 1);
  if (graph.root(layer.targets) != root_of_input(graph, gradient, 2)) return false;
  const std::string reduction = source(graph, loss).text("reduction", "mean");
  if (reduction != source(graph, gradient).text("reduction", "mean")) return false;
  layer.mean = reduction == "mean";
  layer.ignored = source(graph, loss).integer("ignore_index", -1);
  if (layer.ignored != source(graph, gradient).integer("ignore_index", -1)) return false;
  layer.at = gradient;
  layer.loss = output(graph, loss, 0);
  layer.loss_gradient = input(graph, gradient, 0);
  for (int user : graph.users(layer.loss)) {
    if (user <= gradient) return false;
  }
  layer.nodes = {product, loss, gradient};
  layer.weight_gradient = layer.hidden_gradient = layer.bias_gradient = -1;
  const int dlogits = output(graph, gradient, 0);
  if (dlogits < 0) return false;
  for (int user : graph.users(dlogits)) {
    const int second = input(graph, user, 1), result = output(graph, user, 0);
    if (result < 0 || !same(graph, input(graph, user, 0), dlogits)) return false;
    if (layer.weight_gradient < 0 && is_outer_product(graph, user) && same(graph, second, layer.hidden) &&
        is_left_to_the_update(gradients, result)) {
      layer.weight_gradient = result;
    } else if (layer.hidden_gradient < 0 && plain_gemm(graph, user, 0, 0) && input(graph, user, 2) < 0 &&
               same(graph, second, layer.weight)) {
      layer.hidden_gradient = result;
    } else if (layer.bias_gradient < 0 && is_sum_of_rows(graph, user) && layer.bias >= 0 &&
               graph.value(result).shape == of_bias && goes_to_the_update(graph, result)) {
      layer.bias_gradient = result;
    } else {
      return false;
    }
    layer.nodes.push_back(user);
  }
  return layer.hidden_gradient >= 0 && !graph.value(dlogits).is_output;
}

// The value that a gradient is a view of, if it has the same shape; else the gradient itself.
int made_as(const Graph& graph, int gradient) {
  const int root = graph.root(gradient);
  return graph.value(root).shape == graph.value(gradient).shape ? root : gradient;
}

// The node that makes a value which only one other reads, or -1.
int own_producer(const Graph& graph, int value) {
  const bool own = graph.root(value) == value && only_user(graph, value) >= 0;
  return own ? graph.value(value).producer : -1;
}

std::optional<GradientTerm> term_of(const Graph& graph, const std::set<int>& updated, int value) {
  using Form = GradientTerm::Form;
  const int number = own_producer(graph, value);
  if (number < 0) return {};
  const Node& producer = graph.node(number);
  if (is_outer_product(graph, number)) {
    if (!is_factor(graph, updated, producer.inputs[0]) || !is_factor(graph, updated, producer.inputs[1])) return {};
    return GradientTerm{value, Form::product, producer.inputs[0], producer.inputs[1]};
  }
  if (producer.source->op == "GatherGrad") {
    const int rows = graph.root(producer.inputs[2]);  // the update adds those of the same word in place
    if (graph.value(rows).producer < 0 || only_user(graph, rows) != number) return {};
    return GradientTerm{value, Form::rows, producer.inputs[1], producer.inputs[2]};
  }
  if (producer.source->op != "LSTMGrad" && producer.source->op != "GRUGrad") return {};
  if (!is_factor(graph, updated, producer.inputs[0])) return {};
  for (const size_t weights : {1, 2}) {
    if (output(graph, number, weights) == value) return GradientTerm{value, Form::factors, -1, -1, weights};
  }
  return {};
}

std::vector<GradientTerm> terms_of(const Graph& graph, const std::set<int>& updated, int gradient) {
  using Form = GradientTerm::Form;
  if (const auto whole = term_of(graph, updated, gradient)) return {*whole};
  const int number = own_producer(graph, gradient);
  if (number < 0 || !is(graph, number, "Sum") || graph.node(number).inputs.size() != 2) return {};
  const auto first = term_of(graph, updated, input(graph, number, 0));
  const auto second = term_of(graph, updated, input(graph, number, 1));
  if (!first || !second || first->form == second->form) return {};
  if (first->form == Form::factors || second->form == Form::factors) return {};
  return {*first, *second};
}

}  // namespace

std::vector<OutputLayer> find_output_layers(const Graph& graph) {
  const std::vector<MarkedGradient> gradients = find_gradients(graph);
  const std::set<int> updated = updated_parameters(graph);
  std::vector<OutputLayer> layers;
  for (int node = 0; node < static_cast<int>(graph.nodes().size()); ++node) {
    OutputLayer layer;
    if (is(graph, node, "SoftmaxCrossEntropyLoss") && match(graph, gradients, updated, node, layer))
      layers.push_back(layer);
  }
  return layers;
}

std::vector<MarkedGradient> find_gradients(const Graph& graph) {
  const std::set<int> updated = updated_parameters(graph);
  std::vector<MarkedGradient> gradients;
  for (int number = 0; number < static_cast<int>(graph.nodes().size()); ++number) {
    if (!is(graph, number, kMark)) continue;
    const Node& mark = graph.node(number);
    const int value = made_as(graph, mark.inputs[1]);
    gradients.push_back({number, parameter_of(graph, mark), value, terms_of(graph, updated, value)});
  }
  return gradients;
}

bool is_read(const Graph& graph, int input) {
  const std::vector<int>& consumers = graph.value(input).consumers;
  return std::any_of(consumers.begin(), consumers.end(),
                     [&](int node) { return !is(graph, node, kMark) || graph.node(node).inputs[1] == input; });
}

}  // namespace phonograd
