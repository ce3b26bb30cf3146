#include "graph/fusion.h"

#include <algorithm>
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

// Finds the only two nodes that read a value's memory, by their operators.
bool two_users(const Graph& graph, int value, const char* first_op, const char* second_op, int& first, int& second) {
  if (value < 0 || graph.value(value).is_output) return false;
  const std::vector<int> users = graph.users(value);
  if (users.size() != 2) return false;
  const bool in_order = is(graph, users[0], first_op) && is(graph, users[1], second_op);
  first = users[in_order ? 0 : 1], second = users[in_order ? 1 : 0];
  return is(graph, first, first_op) && is(graph, second, second_op);
}

// A node's other input of two, or -1 if the value is neither.
int other_input(const Graph& graph, int node, int value) {
  if (graph.node(node).inputs.size() != 2) return -1;
  if (same(graph, input(graph, node, 0), value)) return input(graph, node, 1);
  return same(graph, input(graph, node, 1), value) ? input(graph, node, 0) : -1;
}

// Whether what is added to a product is low B^T + bias: then that is what `made` has.
bool match_adapter(const Graph& graph, OutputLayer::Logits& made) {
  const int added = made.bias, product = graph.value(added).producer;
  if (product < 0 || !plain_gemm(graph, product, 0, 1) || only_user(graph, added) != made.node) return false;
  made.of_adapter = product;
  made.low = input(graph, product, 0);
  made.adapter = root_of_input(graph, product, 1);
  made.bias = input(graph, product, 2);
  const int64_t V = graph.value(made.weight).shape[0];
  if (graph.value(added).shape != Shape{graph.value(made.hidden).shape[0], V}) return false;
  if (!graph.value(made.adapter).is_input || !same(graph, made.adapter, input(graph, product, 1))) return false;
  return made.bias < 0 || (graph.value(made.bias).shape == Shape{V} && source(graph, product).real("beta", 1) == 1);
}

std::optional<OutputLayer::Logits> logits_of(const Graph& graph, int value) {
  const int product = graph.value(value).producer;
  if (product < 0 || !plain_gemm(graph, product, 0, 1) || graph.value(value).is_output) return {};
  OutputLayer::Logits made{product, input(graph, product, 0), root_of_input(graph, product, 1),
                           input(graph, product, 2)};
  if (!graph.value(made.weight).is_input || !same(graph, made.weight, input(graph, product, 1))) return {};
  if (made.bias < 0) return made;
  if (source(graph, product).real("beta", 1) != 1) return {};
  const Shape of_bias = {graph.value(made.weight).shape[0]};
  if (graph.value(made.bias).shape == of_bias) return made;
  return match_adapter(graph, made) ? std::optional(made) : std::nullopt;
}

// The sum over the words of a value [N, V], or -1.
int sum_over_words(const Graph& graph, int node, int value) {
  if (node < 0 || !is(graph, node, "ReduceSum") || !same(graph, input(graph, node, 0), value)) return -1;
  const int axes = input(graph, node, 1), sum = output(graph, node, 0);
  if (axes < 0 || graph.value(axes).integers != std::vector<int64_t>{1} || sum < 0) return -1;
  return graph.value(sum).shape == Shape{graph.value(value).shape[0]} ? sum : -1;
}

// The teacher whose probabilities p are, with the nodes `product` and `by_gradient` as their only readers.
std::optional<OutputLayer::Logits> match_teacher(const Graph& graph, int p, int product, int by_gradient,
                                                 OutputLayer& layer) {
  const int softmax = graph.value(p).producer;
  if (softmax < 0 || !is(graph, softmax, "Softmax")) return {};
  const int logits = root_of_input(graph, softmax, 0);
  const auto teacher = logits_of(graph, logits);
  if (!teacher || only_user(graph, logits) != softmax || !same(graph, logits, input(graph, softmax, 0))) return {};
  int first = -1, second = -1;
  if (!two_users(graph, p, "Mul", "Mul", first, second)) return {};
  if (std::minmax(first, second) != std::minmax(product, by_gradient)) return {};
  layer.nodes.insert(layer.nodes.end(), {teacher->node, softmax});
  if (teacher->of_adapter >= 0) layer.nodes.push_back(teacher->of_adapter);
  return teacher;
}

// The soft targets around the LogSoftmax of the student's logits. Returns the logits' gradient, or -1.
int match_soft_targets(const Graph& graph, int log_softmax, OutputLayer& layer) {
  const int log_q = output(graph, log_softmax, 0);
  int product = -1, log_softmax_gradient = -1;
  if (!two_users(graph, log_q, "Mul", "LogSoftmaxGrad_13", product, log_softmax_gradient)) return -1;
  const int p = other_input(graph, product, log_q), products = output(graph, product, 0);
  if (p < 0 || graph.value(p).shape != graph.value(log_q).shape) return -1;
  OutputLayer::SoftTargets soft;
  const int sum = only_user(graph, products);
  soft.log_likelihoods = sum_over_words(graph, sum, products);
  if (soft.log_likelihoods < 0) return -1;

  const int scaled = root_of_input(graph, log_softmax_gradient, 0), by_gradient = graph.value(scaled).producer;
  if (by_gradient < 0 || !is(graph, by_gradient, "Mul") || only_user(graph, scaled) != log_softmax_gradient ||
      !same(graph, input(graph, log_softmax_gradient, 0), scaled) ||
      !same(graph, input(graph, log_softmax_gradient, 1), log_q)) {
    return -1;
  }
  const int spread = other_input(graph, by_gradient, p), expand = spread < 0 ? -1 : graph.value(spread).producer;
  if (expand < 0 || !is(graph, expand, "Expand") || only_user(graph, spread) != by_gradient) return -1;
  soft.gradient = input(graph, expand, 0);
  if (graph.value(soft.gradient).shape != Shape{graph.value(p).shape[0], 1}) return -1;

  if (graph.value(p).is_input) {
    soft.given = p;
  } else {
    soft.teacher = match_teacher(graph, p, product, by_gradient, layer);
    if (!soft.teacher) return -1;
  }
  layer.soft_targets = soft;
  layer.nodes.insert(layer.nodes.end(), {log_softmax, product, sum, expand, by_gradient, log_softmax_gradient});
  return output(graph, log_softmax_gradient, 0);
}

// The sum of the gradients of cross-entropy and of soft targets: the logits' gradient. Or -1.
int match_sum(const Graph& graph, int dlogits, int soft_gradient, OutputLayer& layer) {
  const int total = only_user(graph, soft_gradient);
  if (total < 0 || !is(graph, total, "Sum") || only_user(graph, dlogits) != total ||
      !same(graph, other_input(graph, total, soft_gradient), dlogits)) {
    return -1;
  }
  layer.nodes.push_back(total);
  return output(graph, total, 0);
}

// The readers of dlogits: gradients of the hidden states, the weight and the bias, each once, and no one else.
bool match_gradients(const Graph& graph, const std::vector<MarkedGradient>& gradients, int dlogits,
                     OutputLayer& layer) {
  layer.weight_gradient = layer.hidden_gradient = layer.bias_gradient = -1;
  if (dlogits < 0 || graph.value(dlogits).is_output) return false;
  for (int user : graph.users(dlogits)) {
    const int second = input(graph, user, 1), result = output(graph, user, 0);
    if (result < 0 || !same(graph, input(graph, user, 0), dlogits)) return false;
    if (layer.weight_gradient < 0 && is_outer_product(graph, user) && same(graph, second, layer.logits.hidden) &&
        is_left_to_the_update(gradients, result)) {
      layer.weight_gradient = result;
    } else if (layer.adapter_gradient < 0 && layer.logits.adapter >= 0 && is_outer_product(graph, user) &&
               same(graph, second, layer.logits.low)) {
      layer.adapter_gradient = result;
    } else if (layer.low_gradient < 0 && layer.logits.adapter >= 0 && plain_gemm(graph, user, 0, 0) &&
               input(graph, user, 2) < 0 && same(graph, second, layer.logits.adapter)) {
      layer.low_gradient = result;
    } else if (layer.hidden_gradient < 0 && plain_gemm(graph, user, 0, 0) && input(graph, user, 2) < 0 &&
               same(graph, second, layer.logits.weight)) {
      layer.hidden_gradient = result;
    } else if (layer.bias_gradient < 0 && is_sum_of_rows(graph, user) && layer.logits.bias >= 0 &&
               graph.value(result).shape == graph.value(layer.logits.bias).shape && goes_to_the_update(graph, result)) {
      layer.bias_gradient = result;
    } else {
      return false;
    }
    layer.nodes.push_back(user);
  }
  return !graph.users(dlogits).empty();
}

// Sets the nodes that have to wait for the layer; false if the layer would wait for one of them.
bool match_order(const Graph& graph, OutputLayer& layer) {
  std::set<int> late;
  if (layer.loss >= 0) late.insert(graph.root(layer.loss));
  std::vector<int> needed = {layer.logits.hidden, layer.logits.low, layer.logits.bias, layer.targets,
                             layer.loss_gradient};
  if (layer.soft_targets) {
    const OutputLayer::SoftTargets& soft = *layer.soft_targets;
    late.insert(graph.root(soft.log_likelihoods));
    needed.push_back(soft.gradient);
    if (soft.teacher) needed.insert(needed.end(), {soft.teacher->hidden, soft.teacher->low, soft.teacher->bias});
  }
  const auto is_late = [&](int value) { return value >= 0 && late.count(graph.root(value)) != 0; };
  for (int number = 0; number < layer.at; ++number) {
    if (std::find(layer.nodes.begin(), layer.nodes.end(), number) != layer.nodes.end()) continue;
    const Node& node = graph.node(number);
    if (std::none_of(node.inputs.begin(), node.inputs.end(), is_late)) continue;
    layer.later.push_back(number);
    for (int value : node.outputs) {
      if (value >= 0 && !graph.value(value).has_integers) late.insert(graph.root(value));  // a shape is known before
    }
  }
  return std::none_of(needed.begin(), needed.end(), is_late);
}

// The logits that a node reads, made by a layer; false if this cannot be one.
bool match_logits(const Graph& graph, const std::set<int>& updated, int node, OutputLayer& layer) {
  const int logits = root_of_input(graph, node, 0);
  const auto made = logits_of(graph, logits);
  if (!made || !same(graph, logits, input(graph, node, 0)) || !is_factor(graph, updated, made->hidden)) return false;
  layer.logits = *made;
  layer.nodes = {made->node, node};
  if (made->of_adapter >= 0) layer.nodes.push_back(made->of_adapter);
  return true;
}

// Cross-entropy, by its loss node, perhaps with soft targets. Returns the logits' gradient, or -1.
int match_cross_entropy(const Graph& graph, int loss, OutputLayer& layer) {
  const int logits = root_of_input(graph, loss, 0);
  const int log_p = output(graph, loss, 1), gradient = only_user(graph, log_p);
  if (gradient < 0 || !is(graph, gradient, "SoftmaxCrossEntropyLossGrad")) return -1;
  if (!same(graph, log_p, input(graph, gradient, 1)) || output(graph, loss, 0) < 0) return -1;
  layer.targets = input(graph, loss, 1);
  if (graph.root(layer.targets) != root_of_input(graph, gradient, 2)) return -1;
  const std::string reduction = source(graph, loss).text("reduction", "mean");
  if (reduction != source(graph, gradient).text("reduction", "mean")) return -1;
  layer.mean = reduction == "mean";
  layer.ignored = source(graph, loss).integer("ignore_index", -1);
  if (layer.ignored != source(graph, gradient).integer("ignore_index", -1)) return -1;
  layer.loss = output(graph, loss, 0);
  layer.loss_gradient = input(graph, gradient, 0);
  layer.nodes.push_back(gradient);
  const int dlogits = output(graph, gradient, 0);
  int log_softmax = -1, same_loss = -1;
  if (!two_users(graph, logits, "LogSoftmax", "SoftmaxCrossEntropyLoss", log_softmax, same_loss)) {
    return only_user(graph, logits) == loss ? dlogits : -1;
  }
  if (!same(graph, logits, input(graph, log_softmax, 0))) return -1;
  const int soft = match_soft_targets(graph, log_softmax, layer);
  return soft < 0 ? -1 : match_sum(graph, dlogits, soft, layer);
}

// The layer around one loss node, or around a LogSoftmax that only soft targets read; or false.
bool match(const Graph& graph, const std::vector<MarkedGradient>& gradients, const std::set<int>& updated, int node,
           OutputLayer& layer) {
  if (!match_logits(graph, updated, node, layer)) return false;
  int dlogits = -1;
  if (is(graph, node, "SoftmaxCrossEntropyLoss")) {
    dlogits = match_cross_entropy(graph, node, layer);
  } else if (only_user(graph, root_of_input(graph, node, 0)) == node) {
    dlogits = match_soft_targets(graph, node, layer);
  }
  if (dlogits < 0) return false;
  layer.at = graph.value(dlogits).producer;
  return match_gradients(graph, gradients, dlogits, layer) && match_order(graph, layer);
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
  const std::string& op = producer.source->op;
  if (op != "LSTMGrad" && op != "GRUGrad" && op != "CIFGGrad") return {};
  if (!is_factor(graph, updated, producer.inputs[0])) return {};
  for (const size_t weights : {1, 2, 4}) {  // 4: only CIFGGrad has it
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
  std::set<int> taken;
  for (int node = 0; node < static_cast<int>(graph.nodes().size()); ++node) {
    OutputLayer layer;
    if (!is(graph, node, "SoftmaxCrossEntropyLoss") && !is(graph, node, "LogSoftmax")) continue;
    if (!match(graph, gradients, updated, node, layer)) continue;
    std::vector<int> own = layer.nodes;
    own.insert(own.end(), layer.later.begin(), layer.later.end());
    // A node that another layer runs, or that waits for it, would run at two places.
    if (std::any_of(own.begin(), own.end(), [&](int number) { return taken.count(number) != 0; })) continue;
    taken.insert(own.begin(), own.end());
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

std::vector<AdapterGradient> find_adapter_gradients(const Graph& graph) {
  const std::set<int> updated = updated_parameters(graph);
  std::vector<AdapterGradient> found;
  for (int number = 0; number < static_cast<int>(graph.nodes().size()); ++number) {
    if (!plain_gemm(graph, number, 0, 1) || input(graph, number, 2) >= 0) continue;
    const int whole = root_of_input(graph, number, 0);
    const Shape& shape = graph.value(whole).shape;  // [1, rows, columns], a matrix as it is
    if (shape.size() != 3 || graph.value(input(graph, number, 0)).shape != Shape{shape[1], shape[2]}) continue;
    const auto term = term_of(graph, updated, whole);
    if (term && term->form == GradientTerm::Form::factors) found.push_back({number, *term});
  }
  return found;
}

bool is_read(const Graph& graph, int input) {
  const std::vector<int>& consumers = graph.value(input).consumers;
  return std::any_of(consumers.begin(), consumers.end(),
                     [&](int node) { return !is(graph, node, kMark) || graph.node(node).inputs[1] == input; });
}

}  // namespace phonograd
