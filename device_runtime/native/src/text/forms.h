// How words are written: their capitals, and where a sentence begins. FORMAT.md, "Forms".
// Functions are thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokens.h"

namespace phonograd {

enum class TokenKind : uint8_t { word, emoji, mark };

// What a token is: a word begins with a letter or digit. <unk> and its like are marks.
TokenKind kind_of(std::string_view token);

// A place before a token. Unclear: behind a quote or a dash in a sentence, a capital says nothing.
enum class SentencePlace : uint8_t { start, middle, unclear };

SentencePlace place_after(std::string_view token, SentencePlace before);

// The tokens of a message with how each is written: in NFC, with its capitals. The views hold as long as the object;
// the finder must outlive it.
class WrittenTokens {
 public:
  struct Token {
    std::string_view word, written;
  };

  WrittenTokens(std::string_view message, const WordFinder& finder, Letters letters);

  const std::vector<Token>& tokens() const { return tokens_; }
  // The written words in the middle of sentences; none of a message in which most of them have capitals: a heading.
  std::vector<std::string_view> forms() const;

 private:
  Tokens folded_, as_written_;
  std::vector<Token> tokens_;
};

// What a keyboard's shift key asks of a word: what its place asks, nothing, a first capital, capitals alone.
enum class Shift : uint8_t { by_place, none, first, all };

// How to show a word whose usual form is `form`, after its beginning was typed as `typed`, in NFC: capitals that were
// typed stay.
std::string show(std::string_view form, std::string_view typed, Shift shift, SentencePlace place, Letters letters);

}  // namespace phonograd
