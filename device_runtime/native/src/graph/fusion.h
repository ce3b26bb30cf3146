// Patterns of nodes that run as one.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace phonograd {

// Output layer, softmax, cross-entropy and their gradients:
//   logits = hidden W^T + bias; loss; dlogits; dhidden = dlogits W; dW = dlogits^T hidden; dbias = column sums of
//   dlogits
// where dW and dbias are gradients of parameters and no one else reads logits, log p or dlogits.
struct OutputLayer {
  int at;  // the node in whose place it runs: the last whose inputs it needs
  std::vector<int> nodes;
  int hidden, weight, bias;  // values; bias -1 if there is none
  int targets, loss_gradient, loss, hidden_gradient, weight_gradient, bias_gradient;
};

std::vector<OutputLayer> find_output_layers(const Graph& graph);

}  // namespace phonograd
