// optimizer_model.onnx: gradient clipping, if any, and SGD.
#pragma once

#include <string>

namespace phonograd {

// The norm at which gradients are clipped; 0 for none. Throws Error(artifacts), naming the node, for any other
// optimizer.
float read_clip_norm(const std::string& path);

}  // namespace phonograd
