// What a model makes of a text: the scores of the next word; perplexity, top-1 accuracy and keystroke savings.
// FORMAT.md; the same as device_runtime/text/evaluation.py's: counts to the bit, perplexities to the rounding of exp
// and log.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

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

// Scores [V] of the next word after a context: the messages before, a line each, and what is written of the current one
// (the last line, maybe empty). Resets the scorer and asks it in pieces of at most `bptt` steps; the result is the
// scorer's memory, valid until its next call.
const float* score_next(Scorer& scorer, const Vocabulary& vocabulary, std::string_view context, int64_t bptt);

struct Evaluation {
  int64_t tokens = 0;  // <eos> and unknown words included
  int64_t unknown_tokens = 0;
  double perplexity = 0;               // unknown words left out, as in paper P
  double perplexity_with_unknown = 0;  // <unk> by its own probability
  double top1 = 0;                     // paper M's AccuracyTop1, over words; unknown words are misses
  bool has_kss = false;
  double kss = 0;  // paper P's eq. 5; 0 unless asked for
};

// Hears (tokens done, tokens in all) after each window.
using EvaluationProgress = std::function<void(int64_t, int64_t)>;

// Score messages laid out in at most `minibatch` columns of windows of `bptt` steps, both at least 1; the scorer's V is
// the vocabulary's size. Throws Error(training) if the scores are not finite.
Evaluation evaluate(Scorer& scorer, const Vocabulary& vocabulary, const std::vector<std::string_view>& messages,
                    int64_t minibatch, int64_t bptt, bool kss, const EvaluationProgress& progress = {});

}  // namespace phonograd
