// Evaluation of a loaded model: scores of the whole vocabulary, window by window.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/loaded_model.h"
#include "engine/program.h"

namespace phonograd {

// Reads the parameters of `model`, which must outlive it, as they are at each call. Not thread-safe.
class EvaluationSession {
 public:
  explicit EvaluationSession(LoadedModel& model) : model_(model) {}

  void reset();
  // Scores [T*B, V] after tokens [T,B]; valid until the next call. Plans the first call and each of another shape; a
  // change of B zeroes the recurrent states. Throws Error: usage, artifacts, weights.
  const float* logits(const int64_t* tokens, int64_t T, int64_t B);

 private:
  void plan(int64_t T, int64_t B);

  LoadedModel& model_;
  std::unique_ptr<Program> program_;
  std::vector<CarriedState> states_;
  int64_t T_ = 0, B_ = 0;
};

}  // namespace phonograd
