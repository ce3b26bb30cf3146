// pg_predictor: a keyboard's suggestions; pg_personal, the user's own words in them; and prediction weights.
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "capi/border.h"
#include "capi/handles.h"
#include "capi/sized.h"
#include "phonograd.h"
#include "predict/merge.h"
#include "predict/predictor.h"
#include "predict/quantize.h"

using namespace phonograd;

struct pg_predictor {
  pg_predictor(const char* folder, const char* weights, const PredictorOptions& options)
      : predictor(folder, weights == nullptr ? "" : weights, options) {}

  Predictor predictor;
  std::vector<Prediction> suggested;  // by the last call
  std::vector<char> place;            // returned by the last call
};

struct pg_personal {
  explicit pg_personal(const char* path) : words(std::make_shared<PersonalWords>(path == nullptr ? "" : path)) {}

  std::shared_ptr<PersonalWords> words;  // a predictor may use them for longer
  std::string list;                      // returned by the last call
};

namespace {

PredictorOptions predictor_options(const pg_options* options) {
  const EngineOptions chosen = engine_options_of(options);
  if (chosen.precision != Precision::fp32) {
    throw Error(Status::unsupported, std::string("predictor: precision fp32 expected, found ") +
                                         name_of(chosen.precision) + "; for speed give int8 prediction weights");
  }
  return {chosen.threads, chosen.pin_threads, chosen.kernels};
}

constexpr int32_t kMostCandidates = 64;

Wish wish_of(const pg_suggest_options* options) {
  Wish wish;
  if (options == nullptr) return wish;
  const auto chosen = border::options_of(options, sizeof(pg_suggest_options), "pg_suggest_options");
  border::require(chosen.shift >= PG_SHIFT_BY_PLACE && chosen.shift <= PG_SHIFT_ALL,
                  "shift: " + std::to_string(chosen.shift) + "; expected PG_SHIFT_BY_PLACE to PG_SHIFT_ALL");
  border::require(chosen.slip_cost >= 0, "slip_cost: at least 0 expected");
  wish.shift = static_cast<Shift>(chosen.shift);
  wish.emoji = chosen.emoji != 0;
  wish.slips = chosen.slips != 0;
  if (chosen.slip_cost > 0) wish.slip_cost = chosen.slip_cost;
  if (chosen.neighbours != nullptr) wish.neighbours = chosen.neighbours;
  return wish;
}

// A manifest without a folder: it has the file's tensors.
Manifest manifest_of(const TensorFile& file) {
  Manifest manifest;
  for (const TensorSpec& tensor : file.specs()) manifest.tensors.push_back({tensor.name, tensor.shape});
  return manifest;
}

}  // namespace

extern "C" {

pg_status pg_predictor_open(const char* folder, const char* weights, const pg_options* options,
                            pg_predictor** predictor) {
  return border::run_guarded([&] {
    border::require(folder != nullptr && predictor != nullptr, "folder or predictor: NULL");
    *predictor = nullptr;
    *predictor = new pg_predictor(folder, weights, predictor_options(options));
  });
}

void pg_predictor_close(pg_predictor* predictor) {
  delete predictor;
}

pg_status pg_predictor_reset(pg_predictor* predictor) {
  return border::run_guarded([&] {
    border::require(predictor != nullptr, "predictor: NULL");
    predictor->predictor.reset();
  });
}

pg_status pg_predictor_feed(pg_predictor* predictor, const char* text) {
  return border::run_guarded([&] {
    border::require(predictor != nullptr && text != nullptr, "an argument is NULL");
    predictor->predictor.feed(text);
  });
}

pg_status pg_predictor_suggest(pg_predictor* predictor, const char* prefix, const pg_suggest_options* options,
                               int32_t capacity, pg_suggestion* suggestions, int32_t* count) {
  return border::run_guarded([&] {
    border::require(predictor != nullptr && prefix != nullptr && suggestions != nullptr && count != nullptr,
                    "an argument is NULL");
    border::require(capacity >= 1, "capacity: " + std::to_string(capacity) + "; expected at least 1");
    Wish wish = wish_of(options);
    wish.typed = prefix;
    wish.most = static_cast<size_t>(capacity);
    predictor->suggested = predictor->predictor.suggest(wish);
    for (const Prediction& found : predictor->suggested) {
      *suggestions++ = {found.shown.c_str(), found.word, found.probability};
    }
    *count = static_cast<int32_t>(predictor->suggested.size());
  });
}

pg_status pg_predictor_block(pg_predictor* predictor, const char* words) {
  return border::run_guarded([&] {
    border::require(predictor != nullptr, "predictor: NULL");
    predictor->predictor.block(words == nullptr ? "" : words);
  });
}

pg_status pg_predictor_keystrokes(pg_predictor* predictor, const char* word, int32_t marks, int64_t* typed) {
  return border::run_guarded([&] {
    border::require(predictor != nullptr && word != nullptr && typed != nullptr, "an argument is NULL");
    *typed = predictor->predictor.keystrokes(word, marks != 0);
  });
}

pg_status pg_predictor_scores(pg_predictor* predictor, const char* const* words, int32_t count, double* scores) {
  return border::run_guarded([&] {
    border::require(predictor != nullptr && words != nullptr && scores != nullptr, "an argument is NULL");
    border::require(count >= 0 && count <= kMostCandidates,
                    "scores: at most 64 words expected, found " + std::to_string(count) + "; ask in several calls");
    for (int32_t at = 0; at < count; ++at) {
      border::require(words[at] != nullptr, "words: one is NULL");
      scores[at] = predictor->predictor.log_probability(words[at]);
    }
  });
}

pg_status pg_predictor_logits(pg_predictor* predictor, float* logits) {
  return border::run_guarded([&] {
    border::require(predictor != nullptr && logits != nullptr, "an argument is NULL");
    const auto words = static_cast<size_t>(predictor->predictor.vocabulary().size());
    std::memcpy(logits, predictor->predictor.scores(), words * sizeof(float));
  });
}

pg_status pg_predictor_state(pg_predictor* predictor, const void** state, size_t* bytes) {
  return border::run_guarded([&] {
    border::require(predictor != nullptr && state != nullptr && bytes != nullptr, "an argument is NULL");
    predictor->place = predictor->predictor.save_place();
    *state = predictor->place.data();
    *bytes = predictor->place.size();
  });
}

pg_status pg_predictor_restore(pg_predictor* predictor, const void* state, size_t bytes) {
  return border::run_guarded([&] {
    border::require(predictor != nullptr && state != nullptr, "an argument is NULL");
    predictor->predictor.restore(state, bytes);
  });
}

pg_status pg_predictor_personal(pg_predictor* predictor, pg_personal* personal) {
  return border::run_guarded([&] {
    border::require(predictor != nullptr, "predictor: NULL");
    predictor->predictor.use(personal == nullptr ? nullptr : personal->words);
  });
}

pg_status pg_predictor_learn(pg_predictor* predictor, const char* text) {
  return border::run_guarded([&] {
    border::require(predictor != nullptr && text != nullptr, "an argument is NULL");
    predictor->predictor.learn(text);
  });
}

pg_status pg_personal_open(const char* path, pg_personal** personal) {
  return border::run_guarded([&] {
    border::require(personal != nullptr, "personal: NULL");
    *personal = nullptr;
    *personal = new pg_personal(path);
  });
}

void pg_personal_close(pg_personal* personal) {
  delete personal;
}

pg_status pg_personal_save(pg_personal* personal) {
  return border::run_guarded([&] {
    border::require(personal != nullptr, "personal: NULL");
    personal->words->save();
  });
}

pg_status pg_personal_delete(pg_personal* personal, const char* word, int32_t* deleted) {
  return border::run_guarded([&] {
    border::require(personal != nullptr && word != nullptr && deleted != nullptr, "an argument is NULL");
    *deleted = personal->words->erase(word);
  });
}

pg_status pg_personal_veto(pg_personal* personal, const char* word) {
  return border::run_guarded([&] {
    border::require(personal != nullptr && word != nullptr, "an argument is NULL");
    personal->words->veto(word);
  });
}

pg_status pg_personal_allow(pg_personal* personal, const char* word, int32_t* allowed) {
  return border::run_guarded([&] {
    border::require(personal != nullptr && word != nullptr && allowed != nullptr, "an argument is NULL");
    *allowed = personal->words->allow(word);
  });
}

pg_status pg_personal_forget(pg_personal* personal) {
  return border::run_guarded([&] {
    border::require(personal != nullptr, "personal: NULL");
    personal->words->forget();
  });
}

pg_status pg_personal_list(pg_personal* personal, const char** json) {
  return border::run_guarded([&] {
    border::require(personal != nullptr && json != nullptr, "an argument is NULL");
    personal->list = personal->words->list();
    *json = personal->list.c_str();
  });
}

pg_status pg_quantize(const char* folder, const char* weights, const char* out) {
  return border::run_guarded([&] {
    border::require((folder != nullptr || weights != nullptr) && out != nullptr, "folder and weights, or out: NULL");
    const Manifest manifest = folder == nullptr ? manifest_of(TensorFile(weights)) : read_manifest(folder);
    quantize(manifest, weights == nullptr ? "" : weights, out);
  });
}

pg_status pg_merge(const char* weights, const char* out) {
  return border::run_guarded([&] {
    border::require(weights != nullptr && out != nullptr, "weights or out: NULL");
    merge(weights, out);
  });
}

}  // extern "C"
