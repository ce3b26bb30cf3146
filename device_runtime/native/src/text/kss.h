// A keyboard's three suggestions, and the keystrokes that they save (paper P, eq. 5). FORMAT.md, "Keystroke savings".
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

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
  // Characters typed before `word` (not <unk> or <eos>) is one of three suggestions, given the scores [V] of all words
  // by id: the fewest after which suggest() has it, with no word left out.
  int64_t keystrokes(int64_t word, const float* scores) const;

 private:
  const Vocabulary& vocabulary_;
  std::vector<int64_t> order_;  // [V-2]
};

// Ids of the k words with the highest scores [V] that begin with `typed` (folded as text is) and are not `left_out`
// [V], best first, ties by lower id; fewer if fewer words have that prefix. Never <unk> or <eos>. Thread-safe.
std::vector<int64_t> suggest(const PrefixIndex& index, const float* scores, const std::vector<bool>& left_out,
                             std::string_view typed, size_t k);

}  // namespace phonograd
