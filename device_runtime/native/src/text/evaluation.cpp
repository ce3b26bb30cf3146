#include "text/evaluation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "kernels/kernel_set.h"
#include "text/kss.h"
#include "text/tokens.h"
#include "text/windows.h"

namespace phonograd {
namespace {

// Sums over targets: of all, of a message's, or of one.
struct Tally {
  double known_loss = 0, unknown_loss = 0;  // nats
  int64_t known = 0, unknown = 0, words = 0, hits = 0, hits_with_unknown = 0, characters = 0, typed = 0;
  int64_t typed_without_marks = 0;  // where marks are never suggested

  void operator+=(const Tally& other);
};

void Tally::operator+=(const Tally& other) {
  known_loss += other.known_loss;
  unknown_loss += other.unknown_loss;
  known += other.known;
  unknown += other.unknown;
  words += other.words;
  hits += other.hits;
  hits_with_unknown += other.hits_with_unknown;
  characters += other.characters;
  typed += other.typed;
  typed_without_marks += other.typed_without_marks;
}

// Whether a keyboard would suggest `target` first: no word scores more, and none before it as much.
bool is_suggested_first(const float* scores, int64_t V, int64_t target) {
  const float score = scores[target];
  const auto as_much = [score](float other) { return other >= score; };
  const auto more = [score](float other) { return other > score; };
  return target > kEos && std::none_of(scores + kEos + 1, scores + target, as_much) &&
         std::none_of(scores + target + 1, scores + V, more);
}

// The tally of `target` under scores [V], without its keystrokes.
Tally tally_of(const float* scores, int64_t V, int64_t target) {
  float highest;
  const double sum = kernel_set().sum_of_exponentials(static_cast<size_t>(V), scores, &highest);
  const float loss = highest + static_cast<float>(std::log(sum)) - scores[target];
  if (!std::isfinite(loss)) {  // a NaN anywhere is in the sum
    throw Error(Status::training,
                "evaluation: the model's scores are not finite; its weights hold NaN or are far too large");
  }
  Tally one;
  (target == kUnk ? one.unknown_loss : one.known_loss) = static_cast<double>(loss);
  (target == kUnk ? one.unknown : one.known) = 1;
  one.words = target != kEos;
  one.hits = is_suggested_first(scores, V, target);
  one.hits_with_unknown = one.hits != 0 && std::max(scores[kUnk], scores[kEos]) < scores[target];
  return one;
}

int64_t keystrokes(const PrefixIndex& index, const float* scores, int64_t target, int64_t length, bool marks) {
  return target > kEos ? index.keystrokes(target, scores, marks) : length;  // of <eos>, length is 0
}

struct Ratio {
  double above, below;

  double value() const { return above / std::max(1.0, below); }
};

constexpr size_t kFigures = 6;

// Mean nats without and with unknown words, top-1 without and with <unk>, keystroke savings with and without marks.
std::array<Ratio, kFigures> ratios(const Tally& of) {
  const auto real = [](int64_t count) { return static_cast<double>(count); };
  return {{{of.known_loss, real(of.known)},
           {of.known_loss + of.unknown_loss, real(of.known + of.unknown)},
           {real(of.hits), real(of.words)},
           {real(of.hits_with_unknown), real(of.words)},
           {real(of.characters - of.typed), real(of.characters)},
           {real(of.characters - of.typed_without_marks), real(of.characters)}}};
}

// The ratios' standard errors, clustered by message.
std::array<double, kFigures> standard_errors(const std::array<Ratio, kFigures>& all,
                                             const std::vector<Tally>& messages) {
  std::array<double, kFigures> errors{};
  if (messages.size() < 2) return errors;
  for (const Tally& message : messages) {
    const std::array<Ratio, kFigures> own = ratios(message);
    for (size_t i = 0; i < own.size(); ++i) {
      const double rest = own[i].above - all[i].value() * own[i].below;
      errors[i] += rest * rest;
    }
  }
  const auto m = static_cast<double>(messages.size());
  for (size_t i = 0; i < errors.size(); ++i) {
    errors[i] = std::sqrt(m / (m - 1) * errors[i]) / std::max(1.0, all[i].below);
  }
  return errors;
}

Evaluation evaluation(const Tally& total, const std::vector<Tally>& messages, bool kss) {
  const std::array<Ratio, kFigures> all = ratios(total);
  const std::array<double, kFigures> errors = standard_errors(all, messages);
  const auto scaled = [](double perplexity, double error) { return error == 0 ? 0 : perplexity * error; };
  Evaluation result;
  result.tokens = total.known + total.unknown;
  result.unknown_tokens = total.unknown;
  result.words = total.words;
  result.characters = total.characters;
  result.perplexity = std::exp(all[0].value());
  result.perplexity_error = scaled(result.perplexity, errors[0]);
  result.perplexity_with_unknown = std::exp(all[1].value());
  result.perplexity_with_unknown_error = scaled(result.perplexity_with_unknown, errors[1]);
  result.top1 = all[2].value();
  result.top1_error = errors[2];
  result.top1_with_unknown = all[3].value();
  result.top1_with_unknown_error = errors[3];
  result.has_kss = kss;
  result.kss = all[4].value();
  result.kss_error = errors[4];
  result.kss_without_marks = all[5].value();
  result.kss_without_marks_error = errors[5];
  return result;
}

// Where in the stream each message has its <eos>.
std::vector<int64_t> ends_of(const std::vector<int64_t>& stream) {
  std::vector<int64_t> ends;
  for (size_t at = 0; at < stream.size(); ++at) {
    if (stream[at] == kEos) ends.push_back(static_cast<int64_t>(at));
  }
  return ends;
}

// Characters of each token of the stream; 0 for <eos>. Unknown words keep their own length.
std::vector<int64_t> lengths_of(const Vocabulary& vocabulary, const std::vector<std::string_view>& messages) {
  std::vector<int64_t> lengths;
  for (const std::string_view message : messages) {
    Tokens tokens(message, vocabulary.finder(), vocabulary.letters());
    for (std::string_view token; tokens.next(token);) lengths.push_back(characters(token));
    lengths.push_back(0);
  }
  return lengths;
}

}  // namespace

Evaluation evaluate(Scorer& scorer, const Vocabulary& vocabulary, const std::vector<std::string_view>& messages,
                    int64_t minibatch, int64_t bptt, bool kss, const EvaluationProgress& progress) {
  const std::vector<int64_t> stream = vocabulary.stream(messages);
  const std::vector<int64_t> lengths = kss ? lengths_of(vocabulary, messages) : std::vector<int64_t>();
  std::optional<PrefixIndex> index;
  if (kss) index.emplace(vocabulary);
  const int64_t N = static_cast<int64_t>(stream.size()), V = vocabulary.size();
  const int64_t T = bptt, B = evaluation_minibatch(minibatch, N);
  const Windows windows(stream, B, T);
  std::vector<int64_t> tokens(static_cast<size_t>(T * B)), targets(tokens.size());
  const std::vector<int64_t> ends = ends_of(stream);
  std::vector<Tally> tallies(ends.size());  // of each message
  Tally total;
  scorer.reset();
  for (int64_t window = 0; window < windows.count(); ++window) {
    windows.fill(window, tokens.data(), targets.data());
    const float* scores = scorer.logits(tokens.data(), T, B);
    for (int64_t t = 0; t < T; ++t) {
      for (int64_t b = 0; b < B; ++b, scores += V) {
        const int64_t at = windows.place(window, t, b);
        if (at < 0) continue;
        const int64_t target = stream[static_cast<size_t>(at)];
        Tally one = tally_of(scores, V, target);
        if (index) {
          one.characters = lengths[static_cast<size_t>(at)];
          one.typed = keystrokes(*index, scores, target, one.characters, true);
          one.typed_without_marks = keystrokes(*index, scores, target, one.characters, false);
        }
        total += one;
        tallies[static_cast<size_t>(std::lower_bound(ends.begin(), ends.end(), at) - ends.begin())] += one;
      }
    }
    if (progress) progress(total.known + total.unknown, N);
  }
  return evaluation(total, tallies, kss);
}

}  // namespace phonograd
