#include "text/tokens.h"

#include <algorithm>

#include "text/unicode.h"

namespace phonograd {
namespace {

constexpr std::string_view kUnknown = "<unk>";  // in published texts, a word that the authors left out: one token
constexpr uint32_t kZeroWidthSpace = 0x200B, kKeycap = 0x20E3, kEmojiSelector = 0xFE0F;

// What loses its last vowel before a vowel, in French, Catalan and Italian; then it is a word with its apostrophe.
constexpr std::string_view kElided[] = {
    "all",    "anch",  "bell", "c",       "com",   "cos",   "d",     "dall",   "dell",   "dev",    "dov",
    "j",      "jusqu", "l",    "lorsqu",  "m",     "mezz",  "n",     "neanch", "nell",   "nessun", "nient",
    "puisqu", "qu",    "qual", "qualcos", "quand", "quant", "quell", "quest",  "quoiqu", "s",      "sant",
    "senz",   "sott",  "sull", "t",       "trent", "tutt",  "un",    "vent",
};
constexpr std::string_view kVowels = "aeiouyhàáâäæèéêëìíîïòóôöùúûüœ";

bool is_space(const Character& one) {
  return one.valid && (one.is.is_space() || one.point == kZeroWidthSpace);
}

bool is_ascii_word(char byte) {
  return (byte >= 'a' && byte <= 'z') || (byte >= '0' && byte <= '9') || (byte >= 'A' && byte <= 'Z');
}

class Cutter {
 public:
  explicit Cutter(std::string_view text) : text_(text) {}

  // Where the token ends that begins at `at`, which is no space.
  size_t end_of(size_t at) const;

 private:
  size_t after_marks(size_t at) const;
  size_t end_of_word(size_t begin, const Character& first) const;
  size_t end_of_emoji(size_t at) const;
  bool is_keycap(size_t at) const;
  bool is_elision(std::string_view before, size_t next) const;
  size_t after_letters(size_t at, CodePoint& last) const;
  size_t join(CodePoint last, const Character& mark, size_t at) const;

  const std::string_view text_;
};

// Past the marks that are part of what is before them.
size_t Cutter::after_marks(size_t at) const {
  for (Character one = character_at(text_, at); one.valid && one.is.extends() && one.length != 0;
       one = character_at(text_, at)) {
    at += one.length;
  }
  return at;
}

bool Cutter::is_keycap(size_t at) const {
  Character one = character_at(text_, at + 1);
  if (one.point == kEmojiSelector) one = character_at(text_, at + 1 + one.length);
  return one.valid && one.point == kKeycap;
}

size_t Cutter::end_of_emoji(size_t at) const {
  constexpr std::string_view kJoiner = "\xe2\x80\x8d";
  for (;;) {
    at = after_marks(at + character_at(text_, at).length);
    const bool joined = at > kJoiner.size() && text_.substr(at - kJoiner.size(), kJoiner.size()) == kJoiner;
    const Character next = character_at(text_, at);
    if (!joined || !next.valid || !next.is.is_pictograph()) return at;
  }
}

bool Cutter::is_elision(std::string_view before, size_t next) const {
  const Character letter = character_at(text_, next);
  return letter.valid && std::find(std::begin(kElided), std::end(kElided), fold(before)) != std::end(kElided) &&
         kVowels.find(fold(text_.substr(next, letter.length))) != std::string_view::npos;
}

// Where the word goes on after a mark at `at` that joins what is before and after it; `at` if it does not.
size_t Cutter::join(CodePoint last, const Character& mark, size_t at) const {
  const size_t after = after_marks(at + mark.length);
  const CodePoint next = character_at(text_, after).is;
  if (last.is_hangul() || next.is_hangul()) return at;
  const auto both = [&](WordClass one) { return last.word_class() == one && next.word_class() == one; };
  bool joined = false;
  switch (mark.is.word_class()) {
    case WordClass::apostrophe:
      joined = next.is_word() || last.word_class() == WordClass::hebrew;
      break;
    case WordClass::quote:
      joined = both(WordClass::hebrew);
      break;
    case WordClass::joins_letters:
      joined = last.is_letter() && next.is_letter() && next.is_word();
      break;
    default:
      joined = both(WordClass::number);
  }
  return joined ? after : at;
}

// Past letters, digits and the marks on them; `last` becomes the last letter or digit. A keycap is no part of a word,
// and Hangul goes with Hangul alone.
size_t Cutter::after_letters(size_t at, CodePoint& last) const {
  for (;;) {
    const size_t begin = at;
    if (!last.is_hangul()) {
      while (at < text_.size() && is_ascii_word(text_[at])) ++at;
    }
    if (at > begin) last = code_point(static_cast<unsigned char>(text_[at - 1]));
    if (at == text_.size() || static_cast<unsigned char>(text_[at]) < 0x80) return at;
    if (at > begin && is_keycap(at - 1)) return at - 1;
    const Character next = character_at(text_, at);
    if (!next.is.is_word() && !next.is.extends()) return at;
    if (!next.is.extends()) {
      if (next.is.is_hangul() != last.is_hangul()) return at;
      last = next.is;
    }
    at += next.length;
  }
}

size_t Cutter::end_of_word(size_t begin, const Character& first) const {
  CodePoint last = first.is;
  bool has_apostrophe = false;
  for (size_t at = after_letters(begin + first.length, last);;) {
    const Character mark = character_at(text_, at);
    const size_t on = mark.is.may_join() ? join(last, mark, at) : at;
    if (on == at) return at;
    if (mark.is.word_class() == WordClass::apostrophe && !has_apostrophe) {
      has_apostrophe = true;
      if (is_elision(text_.substr(begin, at - begin), on)) return on;
    }
    at = after_letters(on, last);
    if (at == on) return at;  // an apostrophe at the end of a Hebrew word
  }
}

size_t Cutter::end_of(size_t at) const {
  const size_t unknown = at + kUnknown.size();
  if (text_[at] == kUnknown[0] && text_.substr(at, kUnknown.size()) == kUnknown && after_marks(unknown) == unknown) {
    return unknown;
  }
  const Character first = character_at(text_, at);
  const size_t next = at + first.length;
  const bool is_ascii_next = next == text_.size() || static_cast<unsigned char>(text_[next]) < 0x80;
  if (is_ascii_next && first.point < 0x80 && !first.is.is_word()) return next;
  if (!is_ascii_next && first.point < 0x80 && is_keycap(at)) return after_marks(next);
  if (first.is.is_word()) return end_of_word(at, first);
  if (first.is.is_pictograph()) return end_of_emoji(at);
  if (first.is.word_class() == WordClass::flag) {
    const size_t between = after_marks(next);
    const Character second = character_at(text_, between);
    return second.is.word_class() == WordClass::flag ? after_marks(between + second.length) : between;
  }
  return after_marks(at + first.length);
}

class Graphemes final : public WordFinder {
 public:
  void find(std::string_view text, std::vector<size_t>& ends) const override {
    size_t at = character_at(text, 0).length;
    for (Character one = character_at(text, at); one.is_in_run(); one = character_at(text, at)) {
      if (!one.is.extends()) ends.push_back(at);
      at += one.length;
    }
    ends.push_back(at);
  }
};

}  // namespace

const WordFinder& graphemes() {
  static const Graphemes finder;
  return finder;
}

bool Tokens::next(std::string_view& token) {
  const std::string_view text = folded_;
  const auto take = [&](size_t end) {
    token = text.substr(at_, end - at_);
    at_ = end;
    return true;
  };
  if (!ends_.empty()) {
    const size_t end = ends_.back();
    ends_.pop_back();
    return take(end);
  }
  Character first = character_at(text, at_);
  while (first.length != 0 && is_space(first)) first = character_at(text, at_ += first.length);
  if (first.length == 0) return false;
  if (!first.valid || !first.is.is_unspaced()) return take(Cutter(text).end_of(at_));
  finder_.find(text.substr(at_), ends_);
  for (size_t& end : ends_) end += at_;
  std::reverse(ends_.begin(), ends_.end());
  return next(token);
}

bool next_piece(std::string_view& rest, std::string_view& piece) {
  size_t begin = 0;
  Character one = character_at(rest, 0);
  while (one.length != 0 && is_space(one)) one = character_at(rest, begin += one.length);
  size_t end = begin;
  while (one.length != 0 && !is_space(one)) one = character_at(rest, end += one.length);
  piece = rest.substr(begin, end - begin);
  rest.remove_prefix(end);
  return !piece.empty();
}

}  // namespace phonograd
