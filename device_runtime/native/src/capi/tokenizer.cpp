// pg_tokenizer: what a phone makes of text, and what a model makes of it.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "capi/border.h"
#include "capi/handles.h"
#include "capi/sized.h"
#include "engine/engine_scorer.h"
#include "phonograd.h"
#include "text/evaluation.h"
#include "text/forms.h"
#include "text/output_sample.h"
#include "text/rehearsal.h"
#include "text/text.h"
#include "text/tokens.h"
#include "text/vocabulary.h"
#include "text/windows.h"

using namespace phonograd;

// The results of the last call, and the words if there are any.
struct pg_tokenizer {
  std::unique_ptr<Vocabulary> vocabulary;
  std::string text;
  std::vector<int64_t> ids, targets;
  OutputSample sample;
};

namespace {

const Vocabulary& words_of(const pg_tokenizer* tokenizer) {
  border::require(tokenizer != nullptr, "tokenizer: NULL");
  border::require(tokenizer->vocabulary != nullptr, "tokenizer: opened without words; give it a vocabulary");
  return *tokenizer->vocabulary;
}

// A text's messages; of bytes in memory there may be none.
class Messages {
 public:
  explicit Messages(const pg_text* text) {
    border::require(text != nullptr && (text->path != nullptr || text->bytes != nullptr),
                    "text: none; give the path of a file, or bytes");
    if (text->path != nullptr) {
      file_ = std::make_unique<Text>(text->path);
    } else {
      views_ = split_messages({text->bytes, text->length});
    }
  }

  const std::vector<std::string_view>& views() const { return file_ ? file_->messages() : views_; }

 private:
  std::unique_ptr<Text> file_;
  std::vector<std::string_view> views_;  // into the caller's bytes
};

std::vector<int64_t> ids_of(const int64_t* ids, int64_t count) {
  border::require(count >= 0 && (ids != nullptr || count == 0), "ids: NULL, or their number is below 0");
  return {ids, ids + count};
}

// Set the tokenizer's text to what `add` makes of each message, of which each part ends with a space: a line each, but
// for messages of which it makes nothing.
template <typename Add>
void write_lines(pg_tokenizer& tokenizer, const pg_text* text, Add add) {
  const Messages messages(text);
  const Vocabulary* vocabulary = tokenizer.vocabulary.get();
  const WordFinder& finder = vocabulary == nullptr ? graphemes() : vocabulary->finder();
  const Letters letters = vocabulary == nullptr ? Letters::common : vocabulary->letters();
  tokenizer.text.clear();
  for (const std::string_view message : messages.views()) {
    const size_t before = tokenizer.text.size();
    add(message, finder, letters);
    if (tokenizer.text.size() > before) tokenizer.text.back() = '\n';
  }
}

struct Stopped {};

// A model whose scores a caller computes.
class CallersScorer final : public Scorer {
 public:
  CallersScorer(const pg_evaluation_options& options, int64_t V) : options_(options), V_(V) {}
  void reset() override {}
  const float* logits(const int64_t* tokens, int64_t T, int64_t B) override {
    scores_.resize(static_cast<size_t>(T * B * V_));
    if (options_.scores(options_.context, tokens, T, B, scores_.data()) != 0) throw Stopped();
    return scores_.data();
  }

 private:
  const pg_evaluation_options& options_;
  int64_t V_;
  std::vector<float> scores_;  // [T*B,V]
};

Evaluation run_evaluation(pg_tokenizer& tokenizer, const pg_evaluation_options& options) {
  const Vocabulary& vocabulary = words_of(&tokenizer);
  border::require((options.engine == nullptr) != (options.scores == nullptr), "engine or scores: one of them expected");
  border::require(options.T >= 1 && options.B >= 1, "T and B: at least 1 expected");
  const Messages messages(&options.text);
  const auto progress = [&options](int64_t done, int64_t total) {
    if (options.progress != nullptr && options.progress(options.context, done, total) != 0) throw Stopped();
  };
  const auto result = [&](Scorer& scorer) {
    return evaluate(scorer, vocabulary, messages.views(), options.B, options.T, options.kss != 0, progress);
  };
  if (options.engine == nullptr) {
    CallersScorer scorer(options, vocabulary.size());
    return result(scorer);
  }
  border::require(options.engine->engine.manifest().vocabulary == vocabulary.size(),
                  "tokenizer: as many words expected as the engine's model has");
  EngineScorer scorer(options.engine->engine);
  return result(scorer);
}

}  // namespace

extern "C" {

pg_status pg_tokenizer_open(const pg_text* words, const char* name, pg_tokenizer** tokenizer) {
  return border::run_guarded([&] {
    border::require(tokenizer != nullptr, "tokenizer: NULL");
    *tokenizer = nullptr;
    auto made = std::make_unique<pg_tokenizer>();
    if (words != nullptr) {
      border::require(words->bytes != nullptr, "words: bytes of a vocabulary's file expected");
      made->vocabulary =
          std::make_unique<Vocabulary>(std::string(words->bytes, words->length), name == nullptr ? "vocabulary" : name);
    }
    *tokenizer = made.release();
  });
}

void pg_tokenizer_close(pg_tokenizer* tokenizer) {
  delete tokenizer;
}

pg_status pg_tokenizer_messages(pg_tokenizer* tokenizer, const pg_text* text, const char** bytes, size_t* length) {
  return border::run_guarded([&] {
    border::require(tokenizer != nullptr && bytes != nullptr && length != nullptr, "an argument is NULL");
    const Messages messages(text);
    tokenizer->text.clear();
    for (const std::string_view message : messages.views()) (tokenizer->text += message) += '\n';
    *bytes = tokenizer->text.c_str();
    *length = tokenizer->text.size();
  });
}

pg_status pg_tokenizer_tokens(pg_tokenizer* tokenizer, const pg_text* text, const char** bytes, size_t* length) {
  return border::run_guarded([&] {
    border::require(tokenizer != nullptr && bytes != nullptr && length != nullptr, "an argument is NULL");
    write_lines(*tokenizer, text, [&](std::string_view message, const WordFinder& finder, Letters letters) {
      Tokens tokens(message, finder, letters);
      for (std::string_view token; tokens.next(token);) (tokenizer->text += token) += ' ';
    });
    *bytes = tokenizer->text.c_str();
    *length = tokenizer->text.size();
  });
}

pg_status pg_tokenizer_forms(pg_tokenizer* tokenizer, const pg_text* text, const char** bytes, size_t* length) {
  return border::run_guarded([&] {
    border::require(tokenizer != nullptr && bytes != nullptr && length != nullptr, "an argument is NULL");
    write_lines(*tokenizer, text, [&](std::string_view message, const WordFinder& finder, Letters letters) {
      const WrittenTokens written(message, finder, letters);
      for (const std::string_view form : written.forms()) (tokenizer->text += form) += ' ';
    });
    *bytes = tokenizer->text.c_str();
    *length = tokenizer->text.size();
  });
}

pg_status pg_tokenizer_mix(pg_tokenizer* tokenizer, const pg_text* user, const pg_text* general, double user_share,
                           uint64_t seed, pg_stream* stream) {
  return border::run_guarded([&] {
    const Vocabulary& vocabulary = words_of(tokenizer);
    const Messages own(user);
    TrainingText text = general == nullptr ? mix(own.views(), {}, 1.0, vocabulary, seed)
                                           : mix(own.views(), Messages(general).views(), user_share, vocabulary, seed);
    tokenizer->ids = std::move(text.stream);
    pg_stream facts{};
    facts.ids = tokenizer->ids.data();
    facts.tokens = static_cast<int64_t>(tokenizer->ids.size());
    facts.user_tokens = text.user_tokens;
    facts.general_tokens = text.general_tokens;
    facts.user_unknown_share = text.user_unknown_share;
    facts.general_unknown_share = text.general_unknown_share;
    facts.user_invalid_share = text.user_invalid_share;
    border::fill_in(facts, sizeof(pg_stream), "pg_stream", stream);
  });
}

pg_status pg_tokenizer_counts(pg_tokenizer* tokenizer, const int64_t** counts) {
  return border::run_guarded([&] {
    border::require(counts != nullptr, "counts: NULL");
    *counts = words_of(tokenizer).counts().data();
  });
}

pg_status pg_tokenizer_sample(pg_tokenizer* tokenizer, const int64_t* stream, int64_t tokens, const int64_t* counts,
                              int64_t V, int64_t drawn, uint64_t seed, const int64_t** candidates, const float** shifts,
                              int64_t* C) {
  return border::run_guarded([&] {
    border::require(tokenizer != nullptr && candidates != nullptr && shifts != nullptr && C != nullptr,
                    "an argument is NULL");
    border::require(V >= 2 && drawn >= 0, "V from 2 and `drawn` from 0 expected");
    const std::vector<int64_t> ids = ids_of(stream, tokens);
    for (const int64_t id : ids) border::require(id >= 0 && id < V, "stream: an id is not in the vocabulary");
    tokenizer->sample = draw_output_sample(ids, ids_of(counts, V), drawn, seed);
    *candidates = tokenizer->sample.candidates.data();
    *shifts = tokenizer->sample.shifts.data();
    *C = static_cast<int64_t>(tokenizer->sample.candidates.size());
  });
}

pg_status pg_tokenizer_windows(pg_tokenizer* tokenizer, const int64_t* stream, int64_t tokens, int64_t T, int64_t B,
                               const int64_t** inputs, const int64_t** targets, int64_t* count) {
  return border::run_guarded([&] {
    border::require(tokenizer != nullptr && inputs != nullptr && targets != nullptr && count != nullptr,
                    "an argument is NULL");
    border::require(T >= 1 && B >= 1, "T and B: at least 1 expected");
    const std::vector<int64_t> ids = ids_of(stream, tokens);
    const Windows windows(ids, B, T);
    const auto size = static_cast<size_t>(T * B);
    tokenizer->ids.resize(static_cast<size_t>(windows.count()) * size);
    tokenizer->targets.resize(tokenizer->ids.size());
    for (int64_t window = 0; window < windows.count(); ++window) {
      const size_t at = static_cast<size_t>(window) * size;
      windows.fill(window, tokenizer->ids.data() + at, tokenizer->targets.data() + at);
    }
    *inputs = tokenizer->ids.data();
    *targets = tokenizer->targets.data();
    *count = windows.count();
  });
}

pg_status pg_tokenizer_evaluate(pg_tokenizer* tokenizer, const pg_evaluation_options* options,
                                pg_evaluation* evaluation) {
  return border::run_guarded([&] {
    border::require(tokenizer != nullptr, "tokenizer: NULL");
    const auto known = border::options_of(options, sizeof(pg_evaluation_options), "pg_evaluation_options");
    pg_evaluation facts{};
    try {
      const Evaluation found = run_evaluation(*tokenizer, known);
      facts.tokens = found.tokens;
      facts.unknown_tokens = found.unknown_tokens;
      facts.words = found.words;
      facts.characters = found.characters;
      facts.perplexity = found.perplexity;
      facts.perplexity_error = found.perplexity_error;
      facts.perplexity_with_unknown = found.perplexity_with_unknown;
      facts.perplexity_with_unknown_error = found.perplexity_with_unknown_error;
      facts.top1 = found.top1;
      facts.top1_error = found.top1_error;
      facts.top1_with_unknown = found.top1_with_unknown;
      facts.top1_with_unknown_error = found.top1_with_unknown_error;
      facts.kss = found.kss;
      facts.kss_error = found.kss_error;
      facts.kss_without_marks = found.kss_without_marks;
      facts.kss_without_marks_error = found.kss_without_marks_error;
      facts.finished = 1;
    } catch (const Stopped&) {
    }
    border::fill_in(facts, sizeof(pg_evaluation), "pg_evaluation", evaluation);
  });
}

}  // extern "C"
