// A keyboard's three suggestions, and the keystrokes that they save (paper P, eq. 5). FORMAT.md, "Keystroke savings".
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "text/forms.h"
#include "text/vocabulary.h"

namespace phonograd {

constexpr size_t kSuggestions = 3;

// Characters of a word: bytes that do not continue a UTF-8 sequence, but at least the first.
int64_t characters(std::string_view word);

// Characters of `word` typed before is_suggested(those characters) holds; all if it never does.
int64_t keystrokes(std::string_view word, const std::function<bool(std::string_view)>& is_suggested);

// The vocabulary's words but <unk> and <eos>, sorted by bytes, so that the words with a prefix are one range. The
// vocabulary must outlive it. Const methods are thread-safe.
class PrefixIndex {
 public:
  struct Range {
    const int64_t *begin, *end;  // ids, in the order of their words' bytes
  };

  explicit PrefixIndex(const Vocabulary& vocabulary);

  Range with_prefix(std::string_view prefix) const;
  TokenKind kind(int64_t word) const { return kinds_[static_cast<size_t>(word)]; }
  // Characters typed before `word` (not <unk> or <eos>) is one of three suggestions, given the scores [V] of all words
  // by id: the fewest after which a keyboard has it. marks: it suggests marks and emoji too, as in paper P.
  int64_t keystrokes(int64_t word, const float* scores, bool marks) const;

 private:
  const Vocabulary& vocabulary_;
  std::vector<TokenKind> kinds_;  // [V]
  std::vector<int64_t> order_;    // [V-2]
};

}  // namespace phonograd
