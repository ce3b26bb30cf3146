// Frozen tensors: those of a model that training, updates and links leave as they are. FORMAT.md, "Weights".
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "formats/tensor_file.h"

namespace phonograd {

// The names that a model's metadata list as `frozen`. Throws Error(weights), which names `path`, for one that `specs`
// lack, and if all of them are frozen.
std::set<std::string> frozen_in(const std::string& path, const std::map<std::string, std::string>& metadata,
                                const std::vector<TensorSpec>& specs);

// A model's metadata as far as they name its frozen tensors: what its trained weights have too.
std::map<std::string, std::string> frozen_metadata(const std::map<std::string, std::string>& metadata);

}  // namespace phonograd
