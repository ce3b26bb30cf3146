#include "personal/words.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "formats/sha256.h"
#include "formats/utf8.h"
#include "text/tokens.h"

// The same bits on every CPU: no product and sum in one rounding.
#pragma STDC FP_CONTRACT OFF

namespace phonograd {
namespace {

constexpr double kDiscount = 0.5;  // from the count of each follower, for words that never followed
constexpr int64_t kWhole = int64_t{1} << 20;
// Begins at 3 of 10 words, and halves once it has heard of 500: it follows the user, slowly.
constexpr MixtureWeight kFirstWeight{3 * kWhole, 10 * kWhole};
constexpr int64_t kMostHeard = 500 * kWhole;

bool is_valid_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace

uint64_t word_key(std::string_view word) {
  return std::strtoull(sha256_hex(word.data(), word.size()).substr(0, 16).c_str(), nullptr, 16);
}

std::string_view PersonalWord::form() const {
  const auto less = [](const auto& one, const auto& other) { return one.second < other.second; };
  const auto most = std::max_element(forms.begin(), forms.end(), less);
  return most == forms.end() ? std::string_view() : std::string_view(most->first);
}

void PersonalWord::count_form(const std::string& form) {
  if (forms.count(form) == 0 && forms.size() == kMostForms) {
    const auto less = [](const auto& one, const auto& other) { return one.second < other.second; };
    forms.erase(std::min_element(forms.begin(), forms.end(), less));
  }
  uint32_t& times = forms[form];
  if (times < kMostCounted) ++times;
}

// Do it, and remember it for save().
void PersonalWords::apply(Change change) {
  if (!path_.empty()) changes_.push_back(change);
  change(*this);
}

void PersonalWords::use_letters(Letters letters) {
  if (letters != letters_) apply([letters](PersonalWords& words) { words.letters_ = letters; });
}

void PersonalWords::forget() {
  changes_.clear();
  apply([letters = letters_](PersonalWords& words) {
    words.clear();
    words.letters_ = letters;
    ++words.forgotten_;
  });
}

void PersonalWords::clear() {
  std::vector<PersonalWord> words(1);
  std::unordered_map<uint64_t, uint32_t> indices{{kMessageEndKey, 0}};
  words_.swap(words);
  indices_.swap(indices);
  followers_.clear();
  follower_count_ = 0;
  waiting_.clear();
  vetoed_.clear();
  tokens_ = 0;
  weights_.fill(kFirstWeight);
  ++generation_;
}

int64_t PersonalWords::index(std::string_view word) const {
  const auto known = indices_.find(word_key(word));
  return known == indices_.end() ? -1 : static_cast<int64_t>(known->second);
}

bool PersonalWords::context_of(const WordsBefore& before, int length, Context& context) const {
  context.fill(kAny);
  for (int at = 0; at < length; ++at) {
    const auto known = indices_.find(before[static_cast<size_t>(at)]);
    if (known == indices_.end()) return false;
    context[static_cast<size_t>(at)] = known->second;
  }
  return true;
}

int PersonalWords::predict(const WordsBefore& before, std::vector<double>& next) const {
  next.assign(words_.size(), 0.0);
  if (tokens_ == 0) return -1;
  const auto tokens = static_cast<double>(tokens_);
  for (size_t word = 0; word < words_.size(); ++word) next[word] = static_cast<double>(words_[word].count) / tokens;
  int seen = 0;
  Context context;
  for (; seen < kPersonalOrders && context_of(before, seen + 1, context); ++seen) {
    const auto known = followers_.find(context);
    if (known == followers_.end()) break;
    double sum = 0;
    for (const Follower& follower : known->second) sum += follower.count;
    const double rest = kDiscount * static_cast<double>(known->second.size()) / sum;
    for (double& probability : next) probability *= rest;
    for (const Follower& follower : known->second) next[follower.word] += (follower.count - kDiscount) / sum;
  }
  return seen;
}

void PersonalWords::fit(int seen, double own, double model) {
  if (seen < 0 || !(own + model > 0)) return;  // neither knows the word
  const auto explained = static_cast<int64_t>(own / (own + model) * static_cast<double>(kWhole));
  apply([seen, explained](PersonalWords& words) {
    MixtureWeight& weight = words.weights_[static_cast<size_t>(seen)];
    weight.own += explained;
    weight.all += kWhole;
    if (weight.all > kMostHeard) weight = {weight.own / 2, weight.all / 2};
  });
}

bool PersonalWords::learnable(std::string_view word) const {
  return !word.empty() && word.size() <= kMaxPersonalWordBytes && word != "<unk>" && is_valid_utf8(word) &&
         vetoed_.find(word) == vetoed_.end();
}

void PersonalWords::learn(const WordsBefore& before, std::string_view word, std::string_view form, bool guarded) {
  if (!learnable(word)) return;
  apply([before, word = std::string(word), form = std::string(form), guarded](PersonalWords& words) {
    words.add(before, word, form, guarded);
  });
}

void PersonalWords::learn_message_end(const WordsBefore& before) {
  apply([before](PersonalWords& words) { words.count(before, 0); });
}

void PersonalWords::add(const WordsBefore& before, const std::string& word, const std::string& form, bool guarded) {
  if (!learnable(word)) return;  // where another process vetoed it
  const uint64_t key = word_key(word);
  auto known = indices_.find(key);
  if (known == indices_.end()) {
    const auto waiting = waiting_.find(key);
    const uint32_t before_now = waiting == waiting_.end() ? 0 : waiting->second;
    if (guarded && before_now + 1 < kGuardedTimes) {
      waiting_[key] = before_now + 1;
      if (waiting_.size() > kMaxPersonalWords) waiting_.erase(waiting_.begin());
      return;
    }
    words_.push_back({word, before_now, {}});
    try {
      known = indices_.emplace(key, static_cast<uint32_t>(words_.size() - 1)).first;
    } catch (...) {
      words_.pop_back();
      throw;
    }
    tokens_ += before_now;
    if (waiting != waiting_.end()) waiting_.erase(waiting);
  }
  if (words_[known->second].count < kMostCounted) ++words_[known->second].count, ++tokens_;
  if (!form.empty()) words_[known->second].count_form(form);
  count(before, known->second);
  while (words_.size() > kMaxPersonalWords || follower_count_ > kMaxPersonalFollowers) keep(2, 0);
}

void PersonalWords::count(const WordsBefore& before, uint32_t word) {
  Context context;
  for (int length = 1; length <= kPersonalOrders && context_of(before, length, context); ++length) {
    const auto place = followers_.emplace(context, std::vector<Follower>(1, {word, 0})).first;
    std::vector<Follower>& followers = place->second;
    const auto same = [&](const Follower& follower) { return follower.word == word; };
    auto known = std::find_if(followers.begin(), followers.end(), same);
    if (known == followers.end()) known = followers.insert(known, {word, 0});
    follower_count_ += known->count == 0;
    if (known->count < kMostCounted) ++known->count;
  }
}

// Divides all counts, and forgets a word (0: none), what has no count, and what followed words that are gone.
void PersonalWords::keep(uint32_t divisor, uint32_t forgotten) {
  std::vector<int64_t> moved(words_.size(), -1);  // [W]
  std::vector<PersonalWord> words(1);
  std::unordered_map<uint64_t, uint32_t> indices{{kMessageEndKey, 0}};
  std::map<Context, std::vector<Follower>> followers;
  uint64_t tokens = 0;
  size_t follower_count = 0;
  moved[0] = 0;
  for (size_t word = 1; word < words_.size(); ++word) {
    const uint32_t count = words_[word].count / divisor;
    if (count == 0 || word == forgotten) continue;
    moved[word] = static_cast<int64_t>(words.size());
    indices.emplace(word_key(words_[word].spelling), static_cast<uint32_t>(words.size()));
    words.push_back({words_[word].spelling, count, {}});
    for (const auto& [form, times] : words_[word].forms) {
      if (times >= divisor) words.back().forms.emplace(form, times / divisor);
    }
    tokens += count;
  }
  for (const auto& [context, all] : followers_) {
    Context after = context;
    for (int64_t& word : after) word = word < 0 ? kAny : moved[static_cast<size_t>(word)];
    const bool gone = std::count(after.begin(), after.end(), -1) > 0;
    std::vector<Follower> kept;
    for (const Follower& follower : all) {
      const int64_t word = moved[follower.word];
      const uint32_t count = follower.count / divisor;
      if (!gone && word >= 0 && count > 0) kept.push_back({static_cast<uint32_t>(word), count});
    }
    follower_count += kept.size();
    if (!kept.empty()) followers.emplace(after, std::move(kept));
  }
  words_.swap(words);
  indices_.swap(indices);
  followers_.swap(followers);
  tokens_ = tokens;
  follower_count_ = follower_count;
  ++generation_;
}

bool PersonalWords::erase(std::string_view spelling) {
  const std::string word = fold(spelling, letters_);
  const bool known = index(word) > 0 || waiting_.count(word_key(word)) > 0;
  apply([word](PersonalWords& words) { words.remove(word); });
  return known;
}

void PersonalWords::remove(const std::string& word) {
  waiting_.erase(word_key(word));
  const int64_t known = index(word);
  if (known > 0) keep(1, static_cast<uint32_t>(known));
}

void PersonalWords::veto(std::string_view spelling) {
  const std::string word = fold(spelling, letters_);
  if (word.empty() || word.size() > kMaxPersonalWordBytes || !is_valid_utf8(word)) {
    throw Error(Status::usage, "veto: a word of at most " + std::to_string(kMaxPersonalWordBytes) +
                                   " bytes of UTF-8 expected, found " +
                                   quote_text(std::string_view(word).substr(0, 80)));
  }
  if (vetoed_.size() >= kMaxVetoes && vetoed_.find(word) == vetoed_.end()) {
    throw Error(Status::usage, "veto: there are " + std::to_string(kMaxVetoes) + " already; allow some of them");
  }
  apply([word](PersonalWords& words) {
    words.remove(word);
    words.vetoed_.insert(word);
  });
}

bool PersonalWords::allow(std::string_view spelling) {
  const std::string word = fold(spelling, letters_);
  const bool vetoed = vetoed_.count(word) > 0;
  apply([word](PersonalWords& words) { words.vetoed_.erase(word); });
  return vetoed;
}

}  // namespace phonograd
