// What evaluation and suggestions need of a model.
#pragma once

#include <cstdint>

namespace phonograd {

// A language model over a vocabulary of V words. One caller at a time.
struct Scorer {
  virtual ~Scorer() = default;
  // Recurrent states to zero: a new text begins.
  virtual void reset() = 0;
  // Scores [T*B,V] of every next word after tokens [T,B]; states carry over from call to call of the same B. The result
  // is the model's memory, valid until the next call.
  virtual const float* logits(const int64_t* tokens, int64_t T, int64_t B) = 0;
};

}  // namespace phonograd
