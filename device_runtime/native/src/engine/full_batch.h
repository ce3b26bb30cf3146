// The end of a full batch: what all windows together moved the weights by is one gradient, clipped as one.
#pragma once

#include <vector>

#include "engine/compute.h"
#include "engine/parameters.h"
#include "formats/tensor_file.h"

namespace phonograd {

// Scale the movement of all parameters from `base`, the file they were read from, to an L2 norm of at most
// learning_rate x clip_norm. Rows that did not move keep their pages. Throws Error(training), with nothing changed, if
// the norm is not finite.
void clip_movement(Compute& compute, const TensorFile& base, const std::vector<Parameter>& parameters, float clip_norm,
                   float learning_rate);

}  // namespace phonograd
