// `phonograd-phone eval`: perplexity, top-1 and keystroke savings on texts.
#include "base/peak_memory.h"
#include "engine/engine_scorer.h"
#include "phone/commands.h"
#include "phone/engine_options.h"
#include "phone/print.h"
#include "text/evaluation.h"
#include "text/text.h"

namespace phonograd::phone {
namespace {

Syntax syntax() {
  Syntax syntax{"eval", "ARTIFACTS", "Perplexity, top-1 accuracy and keystroke savings of a model on texts.", {}};
  syntax.options = {
      {"--text", "FILE", "Text to evaluate on; may be repeated.", true},
      {"--kss", "", "Also measure keystroke savings."},
  };
  for (const Option& option : engine_options(false)) syntax.options.push_back(option);
  return syntax;
}

int run(const Arguments& arguments) {
  arguments.required("--text");
  const Manifest manifest = read_manifest(arguments.positional());
  const Vocabulary vocabulary = Vocabulary::load(manifest.path("vocab.txt"), manifest.vocabulary);
  std::vector<std::unique_ptr<Text>> texts;  // all read first, so that a missing one is found at once
  for (const std::string& path : arguments.texts("--text")) texts.push_back(std::make_unique<Text>(path));
  const RunningEngine running = start_engine(arguments);
  EngineScorer scorer(*running.engine);
  for (size_t i = 0; i < texts.size(); ++i) {
    const Evaluation found =
        evaluate(scorer, vocabulary, texts[i]->messages(), manifest.minibatch, manifest.bptt, arguments.has("--kss"));
    warn_of_unknown(arguments.texts("--text")[i],
                    static_cast<double>(found.unknown_tokens) / static_cast<double>(found.words));
    JsonLine line("evaluation");
    line.text("text", arguments.texts("--text")[i]).integer("tokens", found.tokens);
    line.integer("unknown_tokens", found.unknown_tokens);
    line.integer("words", found.words).integer("characters", found.characters);
    line.number("perplexity", found.perplexity).number("perplexity_error", found.perplexity_error);
    line.number("perplexity_with_unknown", found.perplexity_with_unknown);
    line.number("perplexity_with_unknown_error", found.perplexity_with_unknown_error);
    line.number("top1", found.top1).number("top1_error", found.top1_error);
    line.number("top1_with_unknown", found.top1_with_unknown);
    line.number("top1_with_unknown_error", found.top1_with_unknown_error);
    if (found.has_kss) {
      line.number("kss", found.kss).number("kss_error", found.kss_error);
      line.number("kss_without_marks", found.kss_without_marks);
      line.number("kss_without_marks_error", found.kss_without_marks_error);
    } else {
      for (const char* key : {"kss", "kss_error", "kss_without_marks", "kss_without_marks_error"})
        line.raw(key, "null");
    }
    running.describe(line);
    print(line.integer("peak_rss_bytes", peak_rss_bytes()));
  }
  return 0;
}

}  // namespace

Command eval_command() {
  return {syntax(), run};
}

}  // namespace phonograd::phone
