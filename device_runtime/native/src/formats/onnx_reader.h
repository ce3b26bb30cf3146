// A strict reader of ONNX files (protocol buffers, wire format), for graphs whose parameters are inputs.
#pragma once

#include <cstddef>
#include <string>

#include "formats/onnx_model.h"

namespace phonograd::onnx {

// Files larger than this are refused: our graphs hold no weights.
constexpr size_t kMaxFileBytes = 16u << 20;

// Read and check a model file. Throws Error(artifacts) naming the file, and the node where there is one, for: a file
// that can't be read, is too large, or is truncated or malformed; wire types that do not fit; sub-graphs, sparse or
// external tensors, functions; attribute and data types other than those of onnx_model.h; a constant whose bytes do not
// match its shape; an IR version outside 3..13; a value produced twice, or used before it is produced.
Model read_model(const std::string& path);

// The same from memory; `path` is used in messages only. What the fuzz target calls.
Model parse_model(const std::string& path, const void* data, size_t size);

}  // namespace phonograd::onnx
