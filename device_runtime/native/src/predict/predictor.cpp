#include "predict/predictor.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/finite.h"
#include "formats/utf8.h"
#include "text/tokens.h"

// The same bits on every CPU: no product and sum in one rounding.
#pragma STDC FP_CONTRACT OFF

namespace phonograd {
namespace {

constexpr int64_t kUsersAlone = -1;  // in place of an id

// Whether a piece may hold a password, a number or an address.
bool is_telling(std::string_view piece) {
  for (size_t at = 0; at < piece.size();) {
    const Character one = character_at(piece, at);
    if (one.point == '@' || one.is.word_class() == WordClass::number) return true;
    at += one.length;
  }
  return false;
}

// The order of suggestions: ties by ascending id, then words that only the user has, by bytes.
bool is_before(const Candidate& one, const Candidate& other) {
  if (one.rank != other.rank) return one.rank > other.rank;
  if (one.score != other.score) return one.score > other.score;
  if (one.id != other.id) return static_cast<uint64_t>(one.id) < static_cast<uint64_t>(other.id);
  return one.spelling < other.spelling;
}

// The best of many candidates.
class Best {
 public:
  explicit Best(size_t most) : most_(most) {}

  double least() const { return found_.size() < most_ ? 0 : found_.back().rank; }
  bool takes(double rank) const { return rank >= least(); }
  void add(const Candidate& one) {
    found_.insert(std::upper_bound(found_.begin(), found_.end(), one, is_before), one);
    if (found_.size() > most_) found_.pop_back();
  }
  const std::vector<Candidate>& found() const { return found_; }

 private:
  const size_t most_;
  std::vector<Candidate> found_;  // best first
};

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
      kernels_(kernel_set(options.kernels.c_str())),
      network_(manifest_, weights_, pool_, kernels_) {
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
  place_.state.back() = 0;
  guarded_.clear();
  advance(kEos);
}

void Predictor::advance(int64_t id) {
  network_.step(id, place_.state.data());
  scored_ = mixed_ = false;
}

SentencePlace Predictor::sentence_place() const {
  const float last = place_.state.back();
  return last == 0 ? SentencePlace::start : static_cast<SentencePlace>(static_cast<int>(last) - 1);
}

void Predictor::read_piece(std::string_view piece, Learn learn) {
  const bool guarded = is_telling(piece);
  const WrittenTokens written(piece, vocabulary_.finder(), vocabulary_.letters());
  for (const auto& token : written.tokens()) {
    const SentencePlace place = sentence_place();
    const std::string_view form = place == SentencePlace::middle ? token.written : "";
    if (learn != nullptr) (this->*learn)(token.word, form, guarded);
    std::copy_backward(place_.before.begin(), place_.before.end() - 1, place_.before.end());
    place_.before[0] = word_key(token.word);
    advance(vocabulary_.id(token.word));
    place_.state.back() = 1.0f + static_cast<float>(place_after(token.word, place));
  }
}

void Predictor::read(std::string_view text, Learn learn) {
  for (;;) {
    const size_t end = text.find('\n');
    const std::string message = fold(text.substr(0, end), Letters::as_written);
    for (std::string_view rest = message, piece; next_piece(rest, piece);) read_piece(piece, learn);
    if (end == std::string_view::npos) break;
    if (place_.state.back() != 0) {  // a line without words is no message
      if (learn != nullptr) (this->*learn)("", "", false);
      end_message();
    }
    text.remove_prefix(end + 1);
  }
}

void Predictor::learn(std::string_view text) {
  if (personal_ == nullptr) throw Error(Status::usage, "predictor: no personal words to learn into; give it some");
  read(text, &Predictor::learn_word);
}

void Predictor::learn_word(std::string_view word, std::string_view form, bool guarded) {
  if (word.empty()) return personal_->learn_message_end(place_.before);
  mix();
  const int64_t index = personal_->index(word), id = vocabulary_.id(word);
  const double weight = personal_->weight(seen_);
  const double own = index < 0 ? 0 : weight * next_[static_cast<size_t>(index)];
  personal_->fit(seen_, own, (1 - weight) * probability(id));
  mixed_ = false;  // also if the next line throws
  const bool again = guarded && !guarded_.insert(word_key(word)).second;
  if (!again || index >= 0) personal_->learn(place_.before, word, form, guarded);
}

void Predictor::block(std::string_view words) {
  std::set<std::string, std::less<>> blocked;
  for (size_t line = 1; !words.empty(); ++line) {
    const size_t end = std::min(words.find('\n'), words.size());
    Tokens tokens(words.substr(0, end), vocabulary_.finder(), vocabulary_.letters());
    std::string_view word, more;
    if (tokens.next(word) && tokens.next(more)) {
      throw Error(Status::usage, "blocked words: one word a line expected, found " +
                                     quote_text(words.substr(0, std::min<size_t>(end, 80))) + " on line " +
                                     std::to_string(line));
    }
    if (!word.empty()) blocked.emplace(word);
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  blocked_.swap(blocked);
}

void Predictor::score() {
  if (scored_) return;
  network_.scores(place_.state.data(), scores_.data());
  weights_.require_unchanged();
  total_ = kernels_.exponentials(scores_.size(), scores_.data(), exponentials_.data());
  if (!std::isfinite(total_)) {
    throw Error(Status::training,
                "predict: the model's scores are not finite; its weights hold NaN or are far too large");
  }
  scored_ = true;
}

void Predictor::use(std::shared_ptr<PersonalWords> personal) {
  if (personal != nullptr) personal->use_letters(vocabulary_.letters());
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

bool Predictor::is_left_out(std::string_view word, TokenKind kind, const Wish& wish) const {
  if (kind == TokenKind::emoji ? !wish.emoji && !wish.marks : kind == TokenKind::mark && !wish.marks) return true;
  return !blocked_.empty() && blocked_.count(word) > 0;
}

std::vector<Candidate> Predictor::best_candidates(const Wish& wish) const {
  const double weight = personal_ == nullptr ? 0 : personal_->weight(seen_);
  const std::string prefix = fold(wish.typed, vocabulary_.letters());
  const Slips slips(prefix, wish.neighbours);
  const double slip_share = std::exp(-wish.slip_cost);
  Best best(wish.most);
  const double least_share = (1 - 1e-9) * total_ / (1 - weight);  // with room for what rounds
  const auto add_model = [&](int64_t id, double share) {
    const auto place = static_cast<size_t>(id);
    if (static_cast<double>(exponentials_[place]) < best.least() * least_share) return;  // most: no division for them
    const double probability = (1 - weight) * this->probability(id);
    const std::string_view word = vocabulary_.word(id);
    if (users_[place] || !best.takes(share * probability)) return;
    if (is_left_out(word, index_.kind(id), wish) || (share < 1 && !slips.fit(word))) return;
    best.add({id, word, vocabulary_.form(id), probability, share * probability, scores_[place]});
  };
  const PrefixIndex::Range exact = index_.with_prefix(prefix);
  if (prefix.empty()) {  // all words, in the order of their ids; most are in a block of which none comes into question
    constexpr int64_t kBlock = 32;
    const auto V = static_cast<int64_t>(exponentials_.size());
    for (int64_t first = kEos + 1; first < V; first += kBlock) {
      const float *begin = exponentials_.data() + first, *end = begin + std::min(kBlock, V - first);
      float most = 0;
      for (const float* one = begin; one != end; ++one) most = std::max(most, *one);
      if (static_cast<double>(most) < best.least() * least_share) continue;
      for (const float* one = begin; one != end; ++one) add_model(one - exponentials_.data(), 1);
    }
  } else {
    for (const int64_t* id = exact.begin; id != exact.end; ++id) add_model(*id, 1);
  }
  for (size_t at = 1; personal_ != nullptr && at < ids_.size(); ++at) {
    const PersonalWord& word = personal_->words()[at];
    const bool fits = word.spelling.compare(0, prefix.size(), prefix) == 0;
    const int64_t id = ids_[at] == kUnk ? kUsersAlone : ids_[at];
    const double probability = weight * next_[at] + (1 - weight) * this->probability(id);
    const double rank = (fits ? 1 : slip_share) * probability;
    if (!best.takes(rank) || is_left_out(word.spelling, kind_of(word.spelling), wish)) continue;
    if (!fits && !(wish.slips && slips.fit(word.spelling))) continue;
    const std::string_view form = word.forms.empty() && id > kEos ? vocabulary_.form(id) : word.form();
    best.add({id, word.spelling, form, probability, rank, 0});
  }
  const PrefixIndex::Range all = index_.with_prefix("");
  for (const int64_t* id = all.begin; wish.slips && id != all.end; ++id) {
    if (id < exact.begin || id >= exact.end) add_model(*id, slip_share);
  }
  return best.found();
}

std::vector<Prediction> Predictor::suggest(const Wish& wish) {
  score();
  if (personal_ != nullptr) mix();
  const std::vector<Candidate> best = best_candidates(wish);
  const std::string typed = fold(wish.typed, Letters::as_written);
  const size_t head = best.empty() ? start_of_last_token(typed) : 0;
  if (head > 0) return suggest_after(std::string_view(typed).substr(0, head), typed.substr(head), wish);
  std::vector<Prediction> suggestions;
  for (const Candidate& one : best) {
    const std::string_view form = one.form.empty() ? one.spelling : one.form;
    suggestions.push_back({one.id, std::string(one.spelling),
                           show(form, typed, wish.shift, sentence_place(), vocabulary_.letters()), one.probability});
  }
  return suggestions;
}

// Where the last of several tokens begins: the end of `typed` after a mark or a space; 0 of a single token, where
// an apostrophe is no part of a word yet, and of marks.
size_t Predictor::start_of_last_token(const std::string& typed) const {
  Tokens tokens(typed, vocabulary_.finder(), Letters::as_written);
  std::string_view token;
  std::string last;
  size_t count = 0;
  for (; tokens.next(token); ++count) {
    if (count == 0 && kind_of(token) != TokenKind::word) return 0;
    last = token;
  }
  if (count < 2 || last == "'") return 0;
  const size_t at = typed.rfind(last);
  return kind_of(last) == TokenKind::mark || at + last.size() < typed.size() ? typed.size() : at;
}

// What fits the last token, or follows the last mark, of what was typed, such as the ho of l'ho.
std::vector<Prediction> Predictor::suggest_after(std::string_view before, const std::string& typed, Wish wish) {
  const Place here = place_;
  wish.typed = typed;
  const auto go_back = [&] {
    place_ = here;
    scored_ = mixed_ = false;
  };
  try {
    read_piece(before, nullptr);
    std::vector<Prediction> suggestions = suggest(wish);
    for (Prediction& one : suggestions) one.shown.insert(0, before);
    go_back();
    return suggestions;
  } catch (...) {
    go_back();
    throw;
  }
}

int64_t Predictor::keystrokes(std::string_view word, bool marks) {
  const std::string folded = fold(word, vocabulary_.letters());
  Wish wish;
  wish.marks = marks;
  return phonograd::keystrokes(folded, [&](std::string_view typed) {
    wish.typed = typed;
    const std::vector<Prediction> found = suggest(wish);
    return std::any_of(found.begin(), found.end(), [&](const Prediction& one) { return one.spelling == folded; });
  });
}

double Predictor::log_probability(std::string_view word) {
  score();
  if (personal_ != nullptr) mix();
  Tokens tokens(word, vocabulary_.finder(), vocabulary_.letters());
  std::string_view first;
  tokens.next(first);
  const int64_t index = personal_ == nullptr || first.empty() ? -1 : personal_->index(first);
  const double weight = personal_ == nullptr ? 0 : personal_->weight(seen_);
  const double own = index < 0 ? 0 : weight * next_[static_cast<size_t>(index)];
  return std::log(own + (1 - weight) * probability(vocabulary_.id(first)));
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
