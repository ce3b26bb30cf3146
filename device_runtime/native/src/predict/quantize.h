// Writes prediction weights. FORMAT.md, "Prediction weights".
#pragma once

#include <cstddef>
#include <string>

#include "formats/manifest.h"

namespace phonograd {

// Write the prediction weights of a model to `out`, atomically, in little memory: those of `weights`, a tensor file of
// the folder's shapes, or of the folder's own weights if that is ""; adapters are merged. Returns the size in bytes.
// Throws Error: weights for a model that does not fit the folder, is not finite, or changes meanwhile; what
// require_outputs (base/places) throws; storage.
size_t quantize(const Manifest& manifest, const std::string& weights, const std::string& out);

}  // namespace phonograd
