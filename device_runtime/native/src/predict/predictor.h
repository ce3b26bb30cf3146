// A keyboard's predictor: the words that may come next, after what was written so far.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "predict/network.h"
#include "text/kss.h"
#include "text/vocabulary.h"

namespace phonograd {

struct PredictorOptions {
  int threads = 2;
  bool pin_threads = false;  // thread i to the i-th fastest CPU this process may run on
  std::string kernels;       // "": the best this CPU has; else a name that `kernel_sets()` lists
};

struct Prediction {
  int64_t word = 0;
  double probability = 0;  // among all words
};

// Reads a text piece by piece, and suggests the next word at any point. One caller at a time; it runs its own threads.
class Predictor {
 public:
  // `weights` "": the folder's prediction weights if it has any, else its weights; or a file of either kind. Opens at
  // the start of a text. Throws Error: artifacts, vocabulary, weights, unsupported.
  Predictor(const std::string& folder, const std::string& weights, const PredictorOptions& options);

  const Vocabulary& vocabulary() const { return vocabulary_; }
  bool int8() const { return weights_.int8(); }

  // Return to the start of a text.
  void reset();
  // Continue the text with these words, each of them whole. A line feed ends a message.
  void feed(std::string_view text);
  // The k most probable next words that begin with `typed`, best first, by the rule of suggest() in text/kss.h; fewer
  // if fewer begin so. The first call after feed() computes the scores of all words, later ones only look them up.
  // Throws Error(training) if the scores are not finite, weights if the file was changed.
  std::vector<Prediction> suggest(std::string_view typed, size_t k = kSuggestions);
  // Scores [V] of the next word: their softmax is the probabilities. Valid until the next call. Throws what suggest()
  // throws.
  const float* scores();

  // Where the text stands, for a later restore() into a predictor of the same model: floats, for nobody to read. They
  // tell much about the text, so they must not leave the phone.
  const std::vector<float>& state() const { return state_; }
  // Throws Error(state) for floats that no predictor of this model gave.
  void restore(const float* state, size_t count);

 private:
  void step(int64_t word);
  void score();

  Manifest manifest_;
  Vocabulary vocabulary_;
  PrefixIndex index_;
  PredictionWeights weights_;
  ThreadPool pool_;
  const KernelSet& sums_;  // of the probabilities
  Network network_;
  std::vector<float> state_;                  // the network's, then 1 within a message or 0 between two
  std::vector<float> scores_, exponentials_;  // [V], both
  double total_ = 0;                          // of the exponentials
  bool scored_ = false;
};

}  // namespace phonograd
