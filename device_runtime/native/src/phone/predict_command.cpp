// `phonograd-phone predict`: the suggestions a keyboard would show.
#include <chrono>

#include "base/peak_memory.h"
#include "phone/commands.h"
#include "phone/engine_options.h"
#include "phone/print.h"
#include "predict/predictor.h"

namespace phonograd::phone {
namespace {

Syntax syntax() {
  Syntax syntax{"predict", "ARTIFACTS", "Print the three most probable next words.", {}};
  syntax.options = {
      {"--context", "TEXT", "Text before the word, one message a line. [default: none]"},
      {"--prefix", "LETTERS", "Letters of the word typed so far. [default: none]"},
      {"--weights", "FILE",
       "Weights, or prediction weights of quantize. [default: the folder's prediction weights, else its weights]"},
  };
  for (const Option& option : engine_options(false)) {
    if (option.name != "--weights") syntax.options.push_back(option);
  }
  return syntax;
}

int run(const Arguments& arguments) {
  const RunningEngine running = place_threads(chosen_engine(arguments), move_to_cores(arguments));
  const PredictorOptions options{running.options.threads, running.options.pin_threads, running.options.kernels};
  const auto began = std::chrono::steady_clock::now();
  const auto seconds_since = [](std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  Predictor predictor(arguments.positional(), arguments.text("--weights"), options);
  const double open_seconds = seconds_since(began);
  const std::string context = arguments.text("--context"), prefix = arguments.text("--prefix");
  const auto opened = std::chrono::steady_clock::now();
  predictor.feed(context);
  std::vector<JsonLine> words;
  for (const Prediction& found : predictor.suggest(prefix)) {
    JsonLine entry;
    entry.text("word", predictor.vocabulary().word(found.word));
    words.push_back(entry.number("probability", found.probability));
  }
  const double seconds = seconds_since(opened);
  JsonLine line("suggestions");
  line.text("context", context).text("prefix", prefix).list("words", words).number("seconds", seconds);
  line.number("open_seconds", open_seconds);
  running.describe(line, predictor.int8() ? "int8" : "fp32");
  print(line.integer("peak_rss_bytes", peak_rss_bytes()));
  return 0;
}

}  // namespace

Command predict_command() {
  return {syntax(), run};
}

}  // namespace phonograd::phone
