#include "text/evaluation.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "text/kss.h"
#include "text/text.h"
#include "text/windows.h"

namespace phonograd {
namespace {

struct Tally {
  double known_loss = 0, unknown_loss = 0;
  int64_t known = 0, unknown = 0, words = 0, hits = 0, characters = 0, typed = 0;

  Evaluation result(bool kss) const;
  // -log p of `target` under scores [V], and whether it is the best.
  void add_loss(const float* scores, int64_t V, int64_t target);
  void add_keystrokes(const PrefixIndex& index, const float* scores, int64_t target, int64_t length);
};

double share(int64_t part, int64_t all) {
  return static_cast<double>(part) / static_cast<double>(std::max<int64_t>(1, all));
}

double perplexity(double loss, int64_t count) {
  return std::exp(loss / static_cast<double>(std::max<int64_t>(1, count)));
}

Evaluation Tally::result(bool kss) const {
  Evaluation result;
  result.tokens = known + unknown;
  result.unknown_tokens = unknown;
  result.perplexity = perplexity(known_loss, known);
  result.perplexity_with_unknown = perplexity(known_loss + unknown_loss, known + unknown);
  result.top1 = share(hits, words);
  result.has_kss = kss;
  if (kss) result.kss = share(characters - typed, characters);
  return result;
}

void Tally::add_loss(const float* scores, int64_t V, int64_t target) {
  const float* best = std::max_element(scores, scores + V);  // the first of equals
  const float highest = *best;
  double sum = 0;
  for (int64_t word = 0; word < V; ++word) sum += static_cast<double>(std::exp(scores[word] - highest));
  const float loss = highest + static_cast<float>(std::log(sum)) - scores[target];
  if (!std::isfinite(loss)) {  // a NaN anywhere is in the sum
    throw Error(Status::training,
                "evaluation: the model's scores are not finite; its weights hold NaN or are far too large");
  }
  const bool is_word = target != kEos;
  (target == kUnk ? unknown_loss : known_loss) += static_cast<double>(loss);
  ++(target == kUnk ? unknown : known);
  words += is_word;
  hits += is_word && target != kUnk && best == scores + target;
}

void Tally::add_keystrokes(const PrefixIndex& index, const float* scores, int64_t target, int64_t length) {
  characters += length;
  if (target == kUnk) {
    typed += length;
  } else if (target != kEos) {
    typed += index.keystrokes(target, scores);
  }
}

// Characters of each token of the stream; 0 for <eos>. Unknown words keep their own length.
std::vector<int64_t> lengths_of(const std::vector<std::string_view>& messages) {
  std::vector<int64_t> lengths;
  for (const std::string_view message : messages) {
    Tokens tokens(message);
    for (std::string_view token; tokens.next(token);) lengths.push_back(characters(token));
    lengths.push_back(0);
  }
  return lengths;
}

}  // namespace

Evaluation evaluate(Scorer& scorer, const Vocabulary& vocabulary, const std::vector<std::string_view>& messages,
                    int64_t minibatch, int64_t bptt, bool kss, const EvaluationProgress& progress) {
  const std::vector<int64_t> stream = vocabulary.stream(messages);
  const std::vector<int64_t> lengths = kss ? lengths_of(messages) : std::vector<int64_t>();
  std::optional<PrefixIndex> index;
  if (kss) index.emplace(vocabulary);
  const int64_t N = static_cast<int64_t>(stream.size()), V = vocabulary.size();
  const int64_t T = bptt, B = evaluation_minibatch(minibatch, N);
  const Windows windows(stream, B, T);
  std::vector<int64_t> tokens(static_cast<size_t>(T * B)), targets(tokens.size());
  Tally tally;
  scorer.reset();
  for (int64_t window = 0; window < windows.count(); ++window) {
    windows.fill(window, tokens.data(), targets.data());
    const float* scores = scorer.logits(tokens.data(), T, B);
    for (int64_t t = 0; t < T; ++t) {
      for (int64_t b = 0; b < B; ++b, scores += V) {
        const int64_t at = windows.place(window, t, b);
        if (at < 0) continue;
        const int64_t target = stream[static_cast<size_t>(at)];
        tally.add_loss(scores, V, target);
        if (index) tally.add_keystrokes(*index, scores, target, lengths[static_cast<size_t>(at)]);
      }
    }
    if (progress) progress(tally.known + tally.unknown, N);
  }
  return tally.result(kss);
}

}  // namespace phonograd
