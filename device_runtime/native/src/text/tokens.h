// The tokens of a message. FORMAT.md, "Text", steps 2 and 3.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/fold.h"

namespace phonograd {

// Finds the words in text of a script that writes none apart.
class WordFinder {
 public:
  virtual ~WordFinder() = default;
  // Set `ends` to where each word ends of the run of letters that `text` begins with, rising. `text` is folded.
  // Thread-safe.
  virtual void find(std::string_view text, std::vector<size_t>& ends) const = 0;
};

// Takes each grapheme for a word: what there is without a vocabulary.
const WordFinder& graphemes();

// The tokens of one message, one by one. Owns the folded message that the tokens point into; the finder must outlive
// it.
class Tokens {
 public:
  explicit Tokens(std::string_view message, const WordFinder& finder = graphemes(), Letters letters = Letters::common)
      : folded_(fold(message, letters)), finder_(finder) {}
  Tokens(const Tokens&) = delete;
  Tokens& operator=(const Tokens&) = delete;

  // Sets `token` to the next token, valid as long as this object; returns false at the end.
  bool next(std::string_view& token);

 private:
  const std::string folded_;
  const WordFinder& finder_;
  size_t at_ = 0;
  std::vector<size_t> ends_;  // of the words that the finder found, the last first, which are still to come
};

// Takes what stands before the next space off a folded message; false if nothing is left. No token holds a space.
bool next_piece(std::string_view& rest, std::string_view& piece);

}  // namespace phonograd
