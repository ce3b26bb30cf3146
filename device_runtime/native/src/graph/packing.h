// The rows of an output sample side by side: a sampled training graph gathers them from whole parameters in every step;
// packed, it has parameters of these rows alone, gathered once.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "formats/onnx_model.h"

namespace phonograd {

// Inputs of a sampled training graph. FORMAT.md, "Output sample".
constexpr const char* kCandidates = "candidates";  // int64 [C]
constexpr const char* kShifts = "shifts";          // float32 [C]

// Rewrites a sampled training graph whose C is `count`. Every input that is gathered by `candidates` or `tokens` has C
// rows from then on, those of the candidates, and so have its gradient and that one's buffer; nodes that gathered or
// scattered by `candidates` become Identity, so that nodes keep their numbers; `tokens`, which were ids where they
// gathered from an input, are places among the candidates like those of other graphs. Returns the packed inputs' names
// and the shapes they had. Throws Error(artifacts) where another node reads one of them, `candidates` or `tokens`.
std::map<std::string, std::vector<int64_t>> pack_candidates(onnx::Model& model, int64_t count);

}  // namespace phonograd
