// A keyboard's three suggestions, and keystroke savings (paper P, eq. 5): what they save its user. FORMAT.md,
// "Keystroke savings"; the same as device_runtime/text/kss.py's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace phonograd {

constexpr size_t kSuggestions = 3;

// Characters of a word: bytes that do not continue a UTF-8 sequence, but at least the first.
int64_t characters(std::string_view word);

// The vocabulary sorted by bytes, so that the words with a prefix are one contiguous range; without <unk> and <eos>.
// The vocabulary must outlive it. Const methods are thread-safe.
class PrefixIndex {
 public:
  struct Range {
    const int64_t *begin, *end;  // ids, in the order of their words' bytes
  };

  explicit PrefixIndex(const Vocabulary& vocabulary);

  Range with_prefix(std::string_view prefix) const;
  // Characters typed before `word` (not <unk> or <eos>) is suggested, given the scores [V] of all words by id: the
  // fewest after which fewer than 3 words that begin with them have a strictly greater score; all if there are none.
  int64_t typed(int64_t word, const float* scores) const;

 private:
  const Vocabulary& vocabulary_;
  std::vector<int64_t> order_;  // [V-2]
};

// Ids of the 3 words with the highest scores [V] that begin with `typed` (folded as text is), best first, of equals the
// one with the lower id first; fewer if there are fewer. Never <unk> or <eos>. A word stands among them just when
// PrefixIndex::typed says that it is suggested, ties aside. Thread-safe.
std::vector<int64_t> suggest(const PrefixIndex& index, const float* scores, std::string_view typed);

}  // namespace phonograd
