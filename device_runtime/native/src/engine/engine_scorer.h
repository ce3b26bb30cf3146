// A running engine as a model that texts are evaluated with.
#pragma once

#include <cstdint>

#include "engine/engine.h"
#include "text/evaluation.h"

namespace phonograd {

// The engine must outlive this.
class EngineScorer final : public Scorer {
 public:
  explicit EngineScorer(Engine& engine) : engine_(engine) {}
  void reset() override { engine_.reset(); }
  const float* logits(const int64_t* tokens, int64_t T, int64_t B) override { return engine_.logits(tokens, T, B); }

 private:
  Engine& engine_;
};

}  // namespace phonograd
