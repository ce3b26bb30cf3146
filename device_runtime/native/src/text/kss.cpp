#include "text/kss.h"

#include <algorithm>
#include <numeric>

namespace phonograd {
namespace {

bool begins_character(std::string_view word, size_t at) {
  return at == 0 || (static_cast<unsigned char>(word[at]) & 0xC0) != 0x80;
}

// Whether a keyboard suggests one word before the other.
bool is_before(const float* scores, int64_t one, int64_t other) {
  return scores[one] > scores[other] || (scores[one] == scores[other] && one < other);
}

}  // namespace

int64_t characters(std::string_view word) {
  int64_t count = 0;
  for (size_t at = 0; at < word.size(); ++at) count += begins_character(word, at);
  return count;
}

int64_t keystrokes(std::string_view word, const std::function<bool(std::string_view)>& suggested) {
  int64_t count = 0;
  for (size_t at = 0; at < word.size(); ++at) {
    if (!begins_character(word, at)) continue;
    if (suggested(word.substr(0, at))) break;
    ++count;
  }
  return count;
}

PrefixIndex::PrefixIndex(const Vocabulary& vocabulary)
    : vocabulary_(vocabulary), order_(static_cast<size_t>(vocabulary.size() - 2)) {
  for (int64_t id = 0; id < vocabulary.size(); ++id) kinds_.push_back(kind_of(vocabulary.word(id)));
  static_assert(kUnk == 0 && kEos == 1, "ids from 2 on are the words that may be suggested");
  std::iota(order_.begin(), order_.end(), int64_t{2});
  std::sort(order_.begin(), order_.end(),
            [&](int64_t one, int64_t other) { return vocabulary.word(one) < vocabulary.word(other); });
}

PrefixIndex::Range PrefixIndex::with_prefix(std::string_view prefix) const {
  // Compared by their first bytes only, words below the prefix come first, then those that begin with it.
  const auto beginning = [&](int64_t id) { return vocabulary_.word(id).substr(0, prefix.size()); };
  const int64_t *first = order_.data(), *last = first + order_.size();
  const int64_t* begin = std::partition_point(first, last, [&](int64_t id) { return beginning(id) < prefix; });
  const int64_t* end = std::partition_point(begin, last, [&](int64_t id) { return beginning(id) == prefix; });
  return {begin, end};
}

int64_t PrefixIndex::keystrokes(int64_t word, const float* scores, bool marks) const {
  const auto is_left_out = [&](int64_t id) { return !marks && kind(id) != TokenKind::word; };
  return phonograd::keystrokes(vocabulary_.word(word), [&](std::string_view typed) {
    size_t before = is_left_out(word) ? kSuggestions : 0;
    const Range range = with_prefix(typed);
    for (const int64_t* id = range.begin; id != range.end && before < kSuggestions; ++id) {
      before += is_before(scores, *id, word) && !is_left_out(*id);
    }
    return before < kSuggestions;
  });
}

}  // namespace phonograd
