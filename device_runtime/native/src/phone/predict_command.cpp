// `phonograd-phone predict`: the suggestions a keyboard would show.
#include <chrono>
#include <memory>

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
      {"--personal", "FILE", "The user's own words, to suggest as well. [default: none]"},
      {"--weights", "FILE",
       "Weights, or prediction weights of quantize. [default: the folder's prediction weights, else its weights]"},
  };
  for (const Option& option : engine_options(false)) {
    if (option.name != "--weights") syntax.options.push_back(option);
  }
  return syntax;
}

// Measures the time since it was made.
class Timer {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count(); }

 private:
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

// Reads on from where the text stands, and suggests what comes next.
JsonLine suggestions(Predictor& predictor, const std::string& context, const std::string& prefix) {
  const Timer timer;
  predictor.feed(context);
  std::vector<JsonLine> words;
  Wish wish;
  wish.typed = prefix;
  for (const Prediction& found : predictor.suggest(wish)) {
    JsonLine entry;
    entry.text("word", found.shown);
    words.push_back(entry.number("probability", found.probability));
  }
  JsonLine line("suggestions");
  return line.text("context", context).text("prefix", prefix).list("words", words).number("seconds", timer.seconds());
}

int run(const Arguments& arguments) {
  const Cores cores = move_to_cores(arguments);
  const RunningEngine running = place_threads(chosen_engine(arguments, cores), cores);
  const PredictorOptions options{running.options.threads, running.options.pin_threads, running.options.kernels};
  const Timer timer;
  Predictor predictor(arguments.positional(), arguments.text("--weights"), options);
  if (arguments.has("--personal")) predictor.use(std::make_shared<PersonalWords>(arguments.text("--personal")));
  const double open_seconds = timer.seconds();
  JsonLine line = suggestions(predictor, arguments.text("--context"), arguments.text("--prefix"));
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
