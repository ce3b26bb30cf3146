// `phonograd-phone predict`: the suggestions a keyboard would show.
#include <chrono>
#include <cstdio>

#include "base/error.h"
#include "base/peak_memory.h"
#include "formats/json.h"
#include "phone/commands.h"
#include "phone/engine_options.h"
#include "phone/print.h"
#include "predict/predictor.h"

namespace phonograd::phone {
namespace {

constexpr size_t kMaxRequestBytes = size_t{1} << 20;

Syntax syntax() {
  Syntax syntax{"predict", "ARTIFACTS", "Print the three most probable next words.", {}};
  syntax.options = {
      {"--context", "TEXT", "Text before the word, one message a line. [default: none]"},
      {"--prefix", "LETTERS", "Letters of the word typed so far. [default: none]"},
      {"--requests", "",
       "Stay open and answer requests from stdin, a JSON object a line: context (what was written since), prefix, "
       "reset."},
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
  for (const Prediction& found : predictor.suggest(prefix)) {
    JsonLine entry;
    entry.text("word", found.spelling);
    words.push_back(entry.number("probability", found.probability));
  }
  JsonLine line("suggestions");
  return line.text("context", context).text("prefix", prefix).list("words", words).number("seconds", timer.seconds());
}

// A request's text field, "" if it has none.
std::string text_of(const json::Value& request, const char* name) {
  const json::Value* found = request.find(name);
  if (found == nullptr) return "";
  const auto* text = found->as<std::string>();
  if (text == nullptr) throw Error(Status::usage, std::string("request: ") + name + " is no text");
  return *text;
}

void answer(Predictor& predictor, std::string_view line) {
  const json::Value request = json::parse(line, Status::usage, "request");
  const auto* fields = request.as<json::Object>();
  if (fields == nullptr) throw Error(Status::usage, "request: a JSON object expected, found another value");
  for (const json::Member& field : *fields) {
    if (field.key != "context" && field.key != "prefix" && field.key != "reset") {
      throw Error(Status::usage, "request: context, prefix or reset expected, found " + json::quote(field.key));
    }
  }
  const json::Value* reset = request.find("reset");
  if (reset != nullptr) {
    const bool* wanted = reset->as<bool>();
    if (wanted == nullptr) throw Error(Status::usage, "request: reset is neither true nor false");
    if (*wanted) predictor.reset();
  }
  print(suggestions(predictor, text_of(request, "context"), text_of(request, "prefix")));
}

// Answers each line of stdin, until its end.
void answer_requests(Predictor& predictor) {
  std::string line;
  for (int byte; (byte = std::getchar()) != EOF;) {
    if (byte != '\n') {
      if (line.size() == kMaxRequestBytes) throw Error(Status::usage, "request: a line of at most 1 MiB expected");
      line += static_cast<char>(byte);
      continue;
    }
    answer(predictor, line);
    line.clear();
  }
}

int run(const Arguments& arguments) {
  arguments.exclude("--requests", "--context");
  arguments.exclude("--requests", "--prefix");
  const RunningEngine running = place_threads(chosen_engine(arguments), move_to_cores(arguments));
  const PredictorOptions options{running.options.threads, running.options.pin_threads, running.options.kernels};
  const Timer timer;
  Predictor predictor(arguments.positional(), arguments.text("--weights"), options);
  const double open_seconds = timer.seconds();
  const bool following = arguments.has("--requests");
  JsonLine line =
      following ? JsonLine("ready") : suggestions(predictor, arguments.text("--context"), arguments.text("--prefix"));
  line.number("open_seconds", open_seconds);
  running.describe(line, predictor.int8() ? "int8" : "fp32");
  print(line.integer("peak_rss_bytes", peak_rss_bytes()));
  if (following) answer_requests(predictor);
  return 0;
}

}  // namespace

Command predict_command() {
  return {syntax(), run};
}

}  // namespace phonograd::phone
