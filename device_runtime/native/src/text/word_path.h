// Words in text of scripts that write none apart: the likeliest by their counts. FORMAT.md, "Text", step 3.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/tokens.h"

namespace phonograd {

// Words that begin with a letter of such a script. Const methods are thread-safe.
class WordPath final : public WordFinder {
 public:
  // Add words of a vocabulary, each once; `count` at least 0.
  void add(std::string_view word, int64_t count);
  void find(std::string_view text, std::vector<size_t>& ends) const override;

 private:
  // From the letters that words begin with, numbered `from`, by one letter more to those numbered `to`.
  struct Edge {
    uint32_t from, point, to;
  };

  size_t place_of(uint32_t from, uint32_t point) const;
  uint32_t longer(uint32_t from, uint32_t point) const { return edges_[place_of(from, point)].to; }
  uint32_t add_longer(uint32_t from, uint32_t point);
  void grow();

  std::vector<Edge> edges_;  // a hash table, at most half full; `to` is 0 in an empty place
  struct Beginning {
    int32_t logarithm;  // of the word's count and one more; kNoWord
    bool goes_on;       // a longer one begins with it
  };
  std::vector<Beginning> beginnings_;  // by number; 0: no letters
  int64_t total_ = 0;
};

}  // namespace phonograd
