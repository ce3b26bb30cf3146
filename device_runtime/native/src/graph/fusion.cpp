#include "graph/fusion.h"

#include <algorithm>

namespace phonograd {

namespace {

bool is(const Graph& graph, int node, const char* op) {
  return graph.node(node).source->op == op;
}

int64_t integer(const Graph& graph, int node, const char* name, int64_t otherwise) {
  for (const onnx::Attribute& attribute : graph.node(node).source->attributes) {
    if (attribute.name == name) return attribute.integer;
  }
  return otherwise;
}

float real(const Graph& graph, int node, const char* name, float otherwise) {
  for (const onnx::Attribute& attribute : graph.node(node).source->attributes) {
    if (attribute.name == name) return attribute.real;
  }
  return otherwise;
}

std::string text(const Graph& graph, int node, const char* name) {
  for (const onnx::Attribute& attribute : graph.node(node).source->attributes) {
    if (attribute.name == name) return attribute.text;
  }
  return "mean";
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
  return user >= 0 && is(graph, user, "InPlaceAccumulatorV2");
}

bool plain_gemm(const Graph& graph, int node, int64_t a_transposed, int64_t b_transposed) {
  return is(graph, node, "Gemm") && integer(graph, node, "transA", 0) == a_transposed &&
         integer(graph, node, "transB", 0) == b_transposed && real(graph, node, "alpha", 1) == 1;
}

// The layer around one loss node, or false.
bool match(const Graph& graph, int loss, OutputLayer& layer) {
  const int logits = root_of_input(graph, loss, 0), product = graph.value(logits).producer;
  if (product < 0 || !plain_gemm(graph, product, 0, 1) || only_user(graph, logits) != loss) return false;
  layer.hidden = input(graph, product, 0);
  layer.weight = input(graph, product, 1);
  layer.bias = input(graph, product, 2);
  if (!graph.value(layer.weight).is_input) return false;
  if (layer.bias >= 0 && (!graph.value(layer.bias).is_input || graph.value(layer.bias).shape.size() != 1 ||
                          real(graph, product, "beta", 1) != 1)) {
    return false;
  }
  const int gradient = only_user(graph, output(graph, loss, 1));
  if (gradient < 0 || !is(graph, gradient, "SoftmaxCrossEntropyLossGrad")) return false;
  layer.targets = input(graph, loss, 1);
  if (graph.root(layer.targets) != root_of_input(graph, gradient, 2)) return false;
  if (text(graph, loss, "reduction") != text(graph, gradient, "reduction")) return false;
  if (integer(graph, loss, "ignore_index", -1) != integer(graph, gradient, "ignore_index", -1)) return false;
  layer.at = gradient;
  layer.loss = output(graph, loss, 0);
  layer.loss_gradient = input(graph, gradient, 0);
  for (int user : graph.users(layer.loss)) {
    if (user < gradient) return false;
  }
  layer.nodes = {product, loss, gradient};
  layer.weight_gradient = layer.hidden_gradient = layer.bias_gradient = -1;
  const int dlogits = output(graph, gradient, 0);
  for (int user : graph.users(dlogits)) {
    const int first = root_of_input(graph, user, 0), second = root_of_input(graph, user, 1);
    const int result = output(graph, user, 0);
    const bool from_dlogits = first == graph.root(dlogits);
    if (from_dlogits && plain_gemm(graph, user, 1, 0) && second == graph.root(layer.hidden) &&
        goes_to_the_update(graph, result)) {
      layer.weight_gradient = result;
    } else if (from_dlogits && plain_gemm(graph, user, 0, 0) && second == layer.weight) {
      layer.hidden_gradient = result;
    } else if (from_dlogits && is(graph, user, "ReduceSum") && layer.bias >= 0 &&
               graph.value(result).shape == graph.value(layer.bias).shape && goes_to_the_update(graph, result)) {
      layer.bias_gradient = result;
    } else {
      return false;
    }
    layer.nodes.push_back(user);
  }
  return layer.weight_gradient >= 0 && layer.hidden_gradient >= 0 && (layer.bias < 0 || layer.bias_gradient >= 0) &&
         !graph.value(graph.root(dlogits)).is_output;
}

}  // namespace

std::vector<OutputLayer> find_output_layers(const Graph& graph) {
  std::vector<OutputLayer> layers;
  for (int node = 0; node < static_cast<int>(graph.nodes().size()); ++node) {
    OutputLayer layer;
    if (is(graph, node, "SoftmaxCrossEntropyLoss") && match(graph, node, layer)) layers.push_back(layer);
  }
  return layers;
}

}  // namespace phonograd
