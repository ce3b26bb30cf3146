// Evaluating a model on a text: perplexity, top-1 accuracy and keystroke savings. FORMAT.md.
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
  // Set the recurrent states to zero, at the start of a new text.
  virtual void reset() = 0;
  // Scores [T*B,V] of every next word after tokens [T,B]. States carry over between calls with the same B. The result
  // points into the model's memory and is valid until the next call.
  virtual const float* logits(const int64_t* tokens, int64_t T, int64_t B) = 0;
};

struct Evaluation {
  int64_t tokens = 0;  // <eos> and unknown words included
  int64_t unknown_tokens = 0;
  int64_t words = 0;       // tokens but <eos>
  int64_t characters = 0;  // of words; 0 without kss
  // Figures, and their standard errors, clustered by message; 0 of fewer than two.
  double perplexity = 0, perplexity_error = 0;                            // unknown words left out, as in paper P
  double perplexity_with_unknown = 0, perplexity_with_unknown_error = 0;  // <unk> by its own probability
  double top1 = 0, top1_error = 0;  // words that are the first suggestion; unknown words are misses
  double top1_with_unknown = 0, top1_with_unknown_error = 0;  // paper M's AccuracyTop1: <unk> may be the best
  bool has_kss = false;
  double kss = 0, kss_error = 0;                              // paper P's eq. 5; 0 unless asked for
  double kss_without_marks = 0, kss_without_marks_error = 0;  // the same of a keyboard that suggests words alone
};

// Called with (tokens done, tokens in total) after each window.
using EvaluationProgress = std::function<void(int64_t, int64_t)>;

// Evaluate messages laid out in at most `minibatch` columns and windows of `bptt` steps, both at least 1. The scorer's
// V must be the vocabulary's size. Throws Error(training) if the scores are not finite.
Evaluation evaluate(Scorer& scorer, const Vocabulary& vocabulary, const std::vector<std::string_view>& messages,
                    int64_t minibatch, int64_t bptt, bool kss, const EvaluationProgress& progress = {});

}  // namespace phonograd
