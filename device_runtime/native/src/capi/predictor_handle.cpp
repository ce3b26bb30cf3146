// pg_predictor: a keyboard's suggestions; and prediction weights.
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "capi/border.h"
#include "capi/handles.h"
#include "phonograd.h"
#include "predict/predictor.h"
#include "predict/quantize.h"

using namespace phonograd;

struct pg_predictor {
  pg_predictor(const char* folder, const char* weights, const PredictorOptions& options)
      : predictor(folder, weights == nullptr ? "" : weights, options) {}

  Predictor predictor;
  std::deque<std::string> words;  // of the suggestions made last
};

namespace {

PredictorOptions predictor_options(const pg_options* options) {
  const EngineOptions chosen = checked(options);
  if (chosen.precision != Precision::fp32) {
    throw Error(Status::unsupported, std::string("predictor: precision fp32 expected, found ") +
                                         name_of(chosen.precision) + "; for speed give int8 prediction weights");
  }
  return {chosen.threads, chosen.pin_threads, chosen.kernels};
}

// Of no folder: the tensors that a file has.
Manifest manifest_of(const TensorFile& file) {
  Manifest manifest;
  for (const TensorSpec& tensor : file.specs()) manifest.tensors.push_back({tensor.name, tensor.shape});
  return manifest;
}

}  // namespace

extern "C" {

pg_status pg_predictor_open(const char* folder, const char* weights, const pg_options* options,
                            pg_predictor** predictor) {
  return border::guarded([&] {
    border::require(folder != nullptr && predictor != nullptr, "folder or predictor: NULL");
    *predictor = nullptr;
    *predictor = new pg_predictor(folder, weights, predictor_options(options));
  });
}

void pg_predictor_close(pg_predictor* predictor) {
  delete predictor;
}

pg_status pg_predictor_reset(pg_predictor* predictor) {
  return border::guarded([&] {
    border::require(predictor != nullptr, "predictor: NULL");
    predictor->predictor.reset();
  });
}

pg_status pg_predictor_feed(pg_predictor* predictor, const char* text) {
  return border::guarded([&] {
    border::require(predictor != nullptr && text != nullptr, "an argument is NULL");
    predictor->predictor.feed(text);
  });
}

pg_status pg_predictor_suggest(pg_predictor* predictor, const char* prefix, int32_t capacity,
                               pg_suggestion* suggestions, int32_t* count) {
  return border::guarded([&] {
    border::require(predictor != nullptr && prefix != nullptr && suggestions != nullptr && count != nullptr,
                    "an argument is NULL");
    border::require(capacity >= 1, "capacity: " + std::to_string(capacity) + "; expected at least 1");
    const std::vector<Prediction> found = predictor->predictor.suggest(prefix, static_cast<size_t>(capacity));
    predictor->words.clear();
    for (size_t i = 0; i < found.size(); ++i) {
      predictor->words.emplace_back(predictor->predictor.vocabulary().word(found[i].word));
      suggestions[i] = {predictor->words.back().c_str(), found[i].word, found[i].probability};
    }
    *count = static_cast<int32_t>(found.size());
  });
}

pg_status pg_predictor_scores(pg_predictor* predictor, float* scores) {
  return border::guarded([&] {
    border::require(predictor != nullptr && scores != nullptr, "an argument is NULL");
    const auto words = static_cast<size_t>(predictor->predictor.vocabulary().size());
    std::memcpy(scores, predictor->predictor.scores(), words * sizeof(float));
  });
}

pg_status pg_predictor_state(const pg_predictor* predictor, const void** state, size_t* bytes) {
  return border::guarded([&] {
    border::require(predictor != nullptr && state != nullptr && bytes != nullptr, "an argument is NULL");
    const std::vector<float>& found = predictor->predictor.state();
    *state = found.data();
    *bytes = found.size() * sizeof(float);
  });
}

pg_status pg_predictor_restore(pg_predictor* predictor, const void* state, size_t bytes) {
  return border::guarded([&] {
    border::require(predictor != nullptr && state != nullptr, "an argument is NULL");
    std::vector<float> copy(bytes / sizeof(float));  // the caller's may not be aligned
    if (!copy.empty()) std::memcpy(copy.data(), state, copy.size() * sizeof(float));
    predictor->predictor.restore(copy.data(), copy.size());
  });
}

pg_status pg_quantize(const char* folder, const char* weights, const char* out) {
  return border::guarded([&] {
    border::require((folder != nullptr || weights != nullptr) && out != nullptr, "folder and weights, or out: NULL");
    const Manifest manifest = folder == nullptr ? manifest_of(TensorFile(weights)) : read_manifest(folder);
    quantize(manifest, weights == nullptr ? "" : weights, out);
  });
}

}  // extern "C"
