// `phonograd-phone predict`: the suggestions a keyboard would show.
#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "phone/commands.h"
#include "phone/engine_options.h"
#include "phone/print.h"
#include "text/kss.h"

namespace phonograd::phone {
namespace {

Syntax syntax() {
  Syntax syntax{"predict", "ARTIFACTS", "Print the three most probable next words.", {}};
  syntax.options = {
      {"--context", "TEXT", "Text before the word, one message a line. [default: none]"},
      {"--prefix", "LETTERS", "Letters of the word typed so far. [default: none]"},
  };
  for (const Option& option : engine_options(false)) syntax.options.push_back(option);
  return syntax;
}

// log sum exp of scores [V]: subtracted from a score, it gives the log-probability.
double normaliser(const float* scores, int64_t V) {
  const double highest = static_cast<double>(*std::max_element(scores, scores + V));
  double sum = 0;
  for (int64_t i = 0; i < V; ++i) sum += std::exp(static_cast<double>(scores[i]) - highest);
  return highest + std::log(sum);
}

int run(const Arguments& arguments) {
  const Manifest manifest = read_manifest(arguments.positional());
  const Vocabulary vocabulary = Vocabulary::load(manifest.path("vocab.txt"), manifest.vocabulary);
  const RunningEngine running = start_engine(arguments);
  EngineScorer scorer(*running.engine);
  const PrefixIndex index(vocabulary);
  const std::string context = arguments.text("--context"), prefix = arguments.text("--prefix");
  const auto began = std::chrono::steady_clock::now();
  const float* scores = score_next(scorer, vocabulary, context, manifest.bptt);
  const double total = normaliser(scores, vocabulary.size());
  if (!std::isfinite(total)) {
    throw Error(Status::training,
                "predict: the model's scores are not finite; its weights hold NaN or are far too large");
  }
  std::vector<JsonLine> words;
  for (const int64_t word : suggest(index, scores, prefix)) {
    JsonLine entry;
    entry.text("word", vocabulary.word(word));
    words.push_back(entry.number("probability", std::exp(static_cast<double>(scores[word]) - total)));
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  JsonLine line("suggestions");
  line.text("context", context).text("prefix", prefix).list("words", words).number("seconds", seconds);
  running.describe(line);
  print(line);
  return 0;
}

}  // namespace

Command predict_command() {
  return {syntax(), run};
}

}  // namespace phonograd::phone
