#include "predict/predictor.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/finite.h"
#include "text/text.h"

// The same bits on every CPU: no product and sum in one rounding.
#pragma STDC FP_CONTRACT OFF

namespace phonograd {
namespace {

constexpr int64_t kUsersAlone = -1;  // in place of an id

// Bytes of pieces that may hold a password, a number or an address.
bool is_telling(char byte) {
  return byte == '@' || (byte >= '0' && byte <= '9');
}

struct Candidate {
  int64_t id;
  std::string_view spelling;
  double probability;
};

// The order of suggestions: ties by ascending id, then words that only the user has, by bytes.
bool is_before(const Candidate& one, const Candidate& other) {
  if (one.probability != other.probability) return one.probability > other.probability;
  if (one.id != other.id) return static_cast<uint64_t>(one.id) < static_cast<uint64_t>(other.id);
  return one.spelling < other.spelling;
}

// The file to predict with.
std::string weights_file(const Manifest& manifest, const std::string& weights) {
  if (!weights.empty()) return weights;
  return manifest.path(manifest.predicts ? kPredictionFile : "weights.safetensors");
}

}  // namespace

Predictor::Predictor(const std::string& folder, const std::string& weights, const PredictorOptions& options)
    : manifest_(read_manifest(folder)),
      vocabulary_(Vocabulary::load(manifest_.path("vocab.txt"), manifest_.vocabulary)),
      index_(vocabulary_),
      weights_(weights_file(manifest_, weights)),
      pool_(options.threads, options.pin_threads),
      sums_(kernel_set("portable")),
      network_(manifest_, weights_, pool_, kernel_set(options.kernels.c_str())) {
  if (weights.empty() && weights_.int8() && weights_.base_sha256() != manifest_.weights_sha256) {
    throw Error(Status::artifacts, weights_.path() +
                                       ": prediction weights of the folder's model expected, found those of another; "
                                       "export the folder again");
  }
  place_.state.resize(network_.state_size() + 1);
  scores_.resize(static_cast<size_t>(vocabulary_.size()));
  exponentials_.resize(scores_.size());
  users_.resize(scores_.size());
  reset();
}

void Predictor::reset() {
  std::fill(place_.state.begin(), place_.state.end(), 0.0f);
  end_message();  // as in training, <eos> predicts the first word
}

void Predictor::end_message() {
  place_.before.fill(kMessageEndKey);
  advance(kEos);
}

void Predictor::advance(int64_t id) {
  network_.step(id, place_.state.data());
  place_.state.back() = id == kEos ? 0.0f : 1.0f;
  scored_ = mixed_ = false;
}

void Predictor::read(std::string_view text, Learn learn) {
  for (;;) {
    const size_t end = text.find('\n');
    const std::string message = fold(text.substr(0, end));
    for (std::string_view rest = message, piece; next_piece(rest, piece);) {
      const bool guarded = std::any_of(piece.begin(), piece.end(), is_telling);
      Tokens tokens(piece);
      for (std::string_view word; tokens.next(word);) {
        if (learn != nullptr) (this->*learn)(word, guarded);
        std::copy_backward(place_.before.begin(), place_.before.end() - 1, place_.before.end());
        place_.before[0] = word_key(word);
        advance(vocabulary_.id(word));
      }
    }
    if (end == std::string_view::npos) break;
    if (place_.state.back() != 0) {  // a line without words is no message
      if (learn != nullptr) (this->*learn)("", false);
      end_message();
    }
    text.remove_prefix(end + 1);
  }
}

void Predictor::learn(std::string_view text) {
  if (personal_ == nullptr) throw Error(Status::usage, "predictor: no personal words to learn into; give it some");
  read(text, &Predictor::learn_word);
}

void Predictor::learn_word(std::string_view word, bool guarded) {
  if (word.empty()) return personal_->learn_message_end(place_.before);
  mix();
  const int64_t index = personal_->index(word), id = vocabulary_.id(word);
  const double weight = personal_->weight(seen_);
  const double own = index < 0 ? 0 : weight * next_[static_cast<size_t>(index)];
  personal_->fit(seen_, own, (1 - weight) * probability(id));
  mixed_ = false;  // also if the next line throws
  personal_->learn(place_.before, word, guarded);
}

void Predictor::score() {
  if (scored_) return;
  network_.scores(place_.state.data(), scores_.data());
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

void Predictor::use(std::shared_ptr<PersonalWords> personal) {
  personal_ = std::move(personal);
  look_up_again();
}

void Predictor::look_up_again() {
  generation_ = personal_ == nullptr ? 0 : personal_->generation();
  mixed_ = false;
  ids_.clear();
  std::fill(users_.begin(), users_.end(), false);
}

// The model's own probability of a word; 0 for <unk> and <eos>, which are no suggestions.
double Predictor::probability(int64_t id) const {
  return id <= kEos ? 0 : static_cast<double>(exponentials_[static_cast<size_t>(id)]) / total_;
}

void Predictor::mix() {
  score();
  if (generation_ != personal_->generation()) look_up_again();  // words are gone, or have moved
  if (mixed_) return;
  seen_ = personal_->predict(place_.before, next_);
  for (size_t word = ids_.size(); word < next_.size(); ++word) {
    ids_.push_back(word == 0 ? kEos : vocabulary_.id(personal_->words()[word].spelling));
    users_[static_cast<size_t>(ids_.back())] = true;
  }
  mixed_ = true;
}

std::vector<Prediction> Predictor::suggest(std::string_view typed, size_t k) {
  score();
  if (personal_ != nullptr) mix();
  const double weight = personal_ == nullptr ? 0 : personal_->weight(seen_);
  std::vector<Candidate> found;
  for (const int64_t id : phonograd::suggest(index_, scores_.data(), users_, typed, k)) {
    found.push_back({id, vocabulary_.word(id), (1 - weight) * probability(id)});
  }
  const std::string prefix = fold(typed);
  for (size_t word = 1; personal_ != nullptr && word < ids_.size(); ++word) {
    const std::string_view spelling = personal_->words()[word].spelling;
    if (spelling.substr(0, prefix.size()) != prefix) continue;
    const int64_t id = ids_[word] == kUnk ? kUsersAlone : ids_[word];
    found.push_back({id, spelling, weight * next_[word] + (1 - weight) * probability(id)});
  }
  const auto best = found.begin() + static_cast<ptrdiff_t>(std::min(k, found.size()));
  if (personal_ != nullptr) std::partial_sort(found.begin(), best, found.end(), is_before);
  std::vector<Prediction> suggestions;
  for (auto one = found.begin(); one != best; ++one) {
    suggestions.push_back({one->id, std::string(one->spelling), one->probability});
  }
  return suggestions;
}

int64_t Predictor::keystrokes(std::string_view word) {
  const std::string folded = fold(word);
  return phonograd::keystrokes(folded, [&](std::string_view typed) {
    const std::vector<Prediction> found = suggest(typed);
    return std::any_of(found.begin(), found.end(), [&](const Prediction& one) { return one.spelling == folded; });
  });
}

const float* Predictor::scores() {
  score();
  return scores_.data();
}

std::vector<char> Predictor::save_place() const {
  const size_t floats = place_.state.size() * sizeof(float);
  std::vector<char> bytes(floats + sizeof place_.before);
  std::memcpy(bytes.data(), place_.state.data(), floats);
  std::memcpy(bytes.data() + floats, place_.before.data(), sizeof place_.before);
  return bytes;
}

void Predictor::restore(const void* place, size_t bytes) {
  const std::string expected = "predictor: the state of a predictor of this model expected, found ";
  Place restored = place_;
  const size_t floats = restored.state.size() * sizeof(float), all = floats + sizeof restored.before;
  if (bytes != all) {
    throw Error(Status::state, expected + std::to_string(bytes) + " bytes, not " + std::to_string(all));
  }
  std::memcpy(restored.state.data(), place, floats);
  std::memcpy(restored.before.data(), static_cast<const char*>(place) + floats, sizeof restored.before);
  const size_t bad = first_not_finite(restored.state.data(), restored.state.size());
  if (bad < restored.state.size()) {
    throw Error(Status::state, expected + "one whose " + not_finite(restored.state.data(), bad));
  }
  place_ = restored;
  scored_ = mixed_ = false;
}

}  // namespace phonograd
