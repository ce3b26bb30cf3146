#include "predict/predictor.h"

#include <algorithm>
#include <cmath>

#include "base/finite.h"
#include "text/text.h"

namespace phonograd {
namespace {

// The file to predict with.
std::string chosen(const Manifest& manifest, const std::string& weights) {
  if (!weights.empty()) return weights;
  return manifest.path(manifest.predicts ? kPredictionFile : "weights.safetensors");
}

}  // namespace

Predictor::Predictor(const std::string& folder, const std::string& weights, const PredictorOptions& options)
    : manifest_(read_manifest(folder)),
      vocabulary_(Vocabulary::load(manifest_.path("vocab.txt"), manifest_.vocabulary)),
      index_(vocabulary_),
      weights_(chosen(manifest_, weights)),
      pool_(options.threads, options.pin_threads),
      sums_(kernel_set("portable")),
      network_(manifest_, weights_, pool_, kernel_set(options.kernels.c_str())) {
  if (weights.empty() && weights_.int8() && weights_.base_sha256() != manifest_.weights_sha256) {
    throw Error(Status::artifacts, weights_.path() +
                                       ": prediction weights of the folder's model expected, found those of another; "
                                       "export the folder again");
  }
  state_.resize(network_.state_size() + 1);
  scores_.resize(static_cast<size_t>(vocabulary_.size()));
  exponentials_.resize(scores_.size());
  reset();
}

void Predictor::reset() {
  std::fill(state_.begin(), state_.end(), 0.0f);
  step(kEos);  // as in training, <eos> predicts the first word
}

void Predictor::step(int64_t word) {
  network_.step(word, state_.data());
  state_.back() = word == kEos ? 0.0f : 1.0f;
  scored_ = false;
}

void Predictor::feed(std::string_view text) {
  std::vector<int64_t> words;
  for (;;) {
    const size_t end = text.find('\n');
    words.clear();
    vocabulary_.encode(text.substr(0, end), words);
    for (const int64_t word : words) step(word);
    if (end == std::string_view::npos) break;
    if (state_.back() != 0) step(kEos);  // a line without words is no message
    text.remove_prefix(end + 1);
  }
}

void Predictor::score() {
  if (scored_) return;
  network_.scores(state_.data(), scores_.data());
  weights_.require_unchanged();
  const float highest = *std::max_element(scores_.begin(), scores_.end());
  for (size_t word = 0; word < scores_.size(); ++word) exponentials_[word] = scores_[word] - highest;
  sums_.exponential(exponentials_.data(), exponentials_.data(), exponentials_.size());
  total_ = 0;
  for (const float exponential : exponentials_) total_ += static_cast<double>(exponential);
  if (!std::isfinite(total_)) {
    throw Error(Status::training,
                "predict: the model's scores are not finite; its weights hold NaN or are far too large");
  }
  scored_ = true;
}

std::vector<Prediction> Predictor::suggest(std::string_view typed, size_t k) {
  score();
  std::vector<Prediction> found;
  for (const int64_t word : phonograd::suggest(index_, scores_.data(), typed, k)) {
    found.push_back({word, static_cast<double>(exponentials_[static_cast<size_t>(word)]) / total_});
  }
  return found;
}

const float* Predictor::scores() {
  score();
  return scores_.data();
}

void Predictor::restore(const float* state, size_t count) {
  const std::string expected = "predictor: the state of a predictor of this model expected, found ";
  if (count != state_.size()) {
    throw Error(Status::state, expected + std::to_string(count) + " floats, not " + std::to_string(state_.size()));
  }
  const size_t bad = first_not_finite(state, count);
  if (bad < count) throw Error(Status::state, expected + "one whose " + not_finite(state, bad));
  state_.assign(state, state + count);
  scored_ = false;
}

}  // namespace phonograd
