// Makes a plain model of one with adapters. FORMAT.md, "Adapters".
#pragma once

#include <string>

namespace phonograd {

// Write the model of the tensor file `weights` without adapters, W + B A in place of each W, to `out`, atomically, in
// little memory. Throws Error: weights for a model without adapters, one that is not finite or changes meanwhile; what
// require_outputs (base/places) throws; storage.
void merge(const std::string& weights, const std::string& out);

}  // namespace phonograd
