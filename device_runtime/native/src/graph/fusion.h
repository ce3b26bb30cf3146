// Patterns of nodes: those that run as one, and gradients that need not be stored.
#pragma once

#include <optional>
#include <vector>

#include "graph/graph.h"

namespace phonograd {

// Output layer, softmax, cross-entropy and their gradients:
//   logits = hidden W^T + bias; loss; dlogits; dhidden = dlogits W; dW = dlogits^T hidden; dbias = column sums of
//   dlogits
// where dW and dbias are gradients of parameters, or not there (of frozen ones), as dhidden if all below is frozen, and
// no one else reads logits, log p or dlogits.
// With distillation (LwF) there are also, of a teacher whose weights have no gradient,
//   p = softmax of its logits; log_likelihoods = sum over the words of p log q, q = softmax of the logits above;
// and dlogits has their gradient too. Or p is an input, and there is no cross-entropy.
struct OutputLayer {
  // logits = hidden W^T + bias, where W is an input. With an adapter B, which is one too: + low B^T.
  struct Logits {
    int node;                    // the product
    int hidden, weight, bias;    // numbers of values; bias: -1 without
    int of_adapter = -1;         // the product with B; -1 without, as the next two
    int low = -1, adapter = -1;  // values [N, R], [V, R]
  };
  struct SoftTargets {
    std::optional<Logits> teacher;
    int given = -1;                           // p [N, V], without a teacher
    int log_likelihoods = -1, gradient = -1;  // values [N]; the gradient perhaps under another shape
  };
  int at;  // the node in whose place it runs: the last whose inputs it needs
  std::vector<int> nodes;
  std::vector<int> later;  // nodes before that one that need its results
  Logits logits;
  int targets = -1, loss_gradient = -1, loss = -1;      // -1: no cross-entropy
  int hidden_gradient, weight_gradient, bias_gradient;  // -1: of what is frozen
  int low_gradient = -1, adapter_gradient = -1;         // likewise
  bool mean = false;                                    // the loss: a mean over the targets, else a sum
  int64_t ignored = -1;                                 // the target that does not count
  std::optional<SoftTargets> soft_targets;
};

std::vector<OutputLayer> find_output_layers(const Graph& graph);

// What a value that only the update reads could be left as.
struct GradientTerm {
  enum class Form {
    rows,     // `second` [N, E], rows of a gradient [V, E] that is zero elsewhere, and their numbers `first` [N]
    product,  // D^T X of `first`, D [N, M], and `second`, X [N, K]
    factors,  // the operator that would make it as its result number `output` knows its factors
  };
  int value;
  Form form;
  int first = -1, second = -1;  // values
  size_t output = 0;
};

// A gradient that a training graph marks as a parameter's (InPlaceAccumulatorV2).
struct MarkedGradient {
  int node;
  int parameter;  // the input that the gradient's buffer is named after; -1 if none of the gradient's shape is
  int value;
  // What it is the sum of: itself, or a tied embedding's rows and product. Empty: it has to be stored.
  std::vector<GradientTerm> terms;
};

std::vector<MarkedGradient> find_gradients(const Graph& graph);

// A product of a gradient dW, which nobody else reads and whose maker knows its factors D and X, with A^T: it is
// D^T (X A^T), and dW need not be made. So it is of recurrent weights W + B A.
struct AdapterGradient {
  int node;
  GradientTerm whole;  // dW
};

std::vector<AdapterGradient> find_adapter_gradients(const Graph& graph);

// Whether some node reads an input. Buffers of gradients are named by the nodes that mark these, and read by none.
bool is_read(const Graph& graph, int input);

}  // namespace phonograd
