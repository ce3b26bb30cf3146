// A keyboard's predictor: the words that may come next, after what was written so far.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "personal/words.h"
#include "predict/network.h"
#include "predict/slips.h"
#include "text/forms.h"
#include "text/kss.h"
#include "text/vocabulary.h"

namespace phonograd {

struct PredictorOptions {
  int threads = 2;
  bool pin_threads = false;  // thread i to the i-th fastest CPU this process may run on
  std::string kernels;       // "": the best this CPU has; else a name that `kernel_sets()` lists
};

// What a keyboard asks for.
struct Wish {
  std::string_view typed;  // the beginning of the word
  size_t most = kSuggestions;
  Shift shift = Shift::by_place;
  bool emoji = false, marks = false;  // besides words
  bool slips = false;                 // also words whose beginning is one slip away from what was typed
  double slip_cost = kSlipCost;       // nats, taken from their logarithms
  std::string_view neighbours = kQwerty;
};

struct Prediction {
  int64_t word = 0;        // -1: only the user has it
  std::string spelling;    // folded
  std::string shown;       // as it is written here
  double probability = 0;  // among all words
};

struct Candidate {
  int64_t id;
  std::string_view spelling, form;
  double probability, rank;  // rank: what is left of the probability after a slip
  float score;
};

// Where a text stands.
struct Place {
  std::vector<float> state;  // the network's, then 0 between two messages, or 1 + the SentencePlace within one
  WordsBefore before{kMessageEndKey, kMessageEndKey};
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
  void feed(std::string_view text) { read(text, nullptr); }
  // Mix the user's words into the suggestions; nullptr: no longer.
  void use(std::shared_ptr<PersonalWords> personal);
  // Continue the text, and learn it: words that the user wrote. Every word costs the scores of all words. Throws
  // Error(usage) without personal words, and what suggest() throws.
  void learn(std::string_view text);
  // Never suggest these words, a line each, in any case; in place of those before. Throws Error(usage) for a line that
  // is more than a word.
  void block(std::string_view words);
  // The most probable next words that fit, best first, ties by id, then words that only the user has; fewer if fewer
  // fit. The first call after feed() computes the scores of all words, later ones only look them up. Throws
  // Error(training) if the scores are not finite, weights if the file was changed.
  std::vector<Prediction> suggest(const Wish& wish);
  // Characters of `word` typed before it is one of three suggestions; all if it never is. marks: marks and emoji are
  // suggested too. Throws what suggest() throws.
  int64_t keystrokes(std::string_view word, bool marks);
  // The logarithm of the probability that `word` is next, of its first token if it has several; -inf if neither the
  // model nor the user knows it. Throws what suggest() throws.
  double log_probability(std::string_view word);
  // Scores [V] of the next word: their softmax is the probabilities. Valid until the next call. Throws what suggest()
  // throws.
  const float* scores();

  // Where the text stands, for a later restore() into a predictor of the same model: for nobody to read. It tells much
  // about the text, so it must not leave the phone.
  std::vector<char> save_place() const;
  // Throws Error(state) for bytes that no predictor of this model gave.
  void restore(const void* place, size_t bytes);

 private:
  void advance(int64_t id);
  void end_message();
  // A pointer: a program that only feeds text has no code to learn it.
  using Learn = void (Predictor::*)(std::string_view word, std::string_view form, bool guarded);
  void read(std::string_view text, Learn learn);
  void read_piece(std::string_view piece, Learn learn);
  void learn_word(std::string_view word, std::string_view form, bool guarded);  // "": a message's end
  SentencePlace sentence_place() const;
  double probability(int64_t id) const;
  std::vector<Candidate> best_candidates(const Wish& wish) const;
  size_t start_of_last_token(const std::string& typed) const;
  std::vector<Prediction> suggest_after(std::string_view before, const std::string& typed, Wish wish);
  bool is_left_out(std::string_view word, TokenKind kind, const Wish& wish) const;
  void score();
  void mix();
  void look_up_again();

  Manifest manifest_;
  Vocabulary vocabulary_;
  PrefixIndex index_;
  PredictionWeights weights_;
  ThreadPool pool_;
  const KernelSet& kernels_;
  Network network_;
  Place place_;
  std::vector<float> scores_, exponentials_;  // [V], both
  double total_ = 0;                          // of the exponentials
  bool scored_ = false;
  std::set<std::string, std::less<>> blocked_;
  std::set<uint64_t> guarded_;  // keys of guarded words that this message has

  std::shared_ptr<PersonalWords> personal_;
  uint64_t generation_ = 0;   // of the personal words that `ids_` are of
  std::vector<int64_t> ids_;  // [W] in the vocabulary, of the personal words that were looked up
  std::vector<bool> users_;   // [V] whether the user has the word
  std::vector<double> next_;  // [W] its probability, as the user writes
  int seen_ = -1;             // words of the context that the user wrote before
  bool mixed_ = false;
};

}  // namespace phonograd
