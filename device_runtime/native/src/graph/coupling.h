// CIFG layers of a graph, each as one node.
#pragma once

#include "formats/onnx_model.h"

namespace phonograd {

// Rewrites a graph in which an LSTM computes a CIFG, with weights of four gates made of three gates' and R P in place
// of R: FORMAT.md, "The artifacts folder". Such a layer with its projection becomes a node CIFG or CIFGTraining, its
// gradient with those of W, R, B and P a node CIFGGrad (operators/lstm.cpp). What only they needed becomes Identity, so
// that nodes keep their numbers. A layer that is written otherwise stays as it is.
void couple_gates(onnx::Model& model);

}  // namespace phonograd
