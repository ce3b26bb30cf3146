// What Unicode says of a code point, from tables that native_build/unicode_tables.py makes. Functions are thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace phonograd {

// Word_Break of UAX #29 as FORMAT.md, "Text", tailors it.
enum class WordClass : uint8_t {
  other,
  letter,
  hebrew,
  number,
  joins_letters,
  joins_digits,
  apostrophe,
  quote,
  extend,
  joiner,  // U+200D
  flag,    // a regional indicator: two are a flag
  hangul,
};

// The properties of a code point.
struct CodePoint {
  uint32_t record = 0;

  WordClass word_class() const { return static_cast<WordClass>(record & 15); }
  uint32_t combining_class() const { return record >> 24; }
  bool normalizes() const { return has(8); }  // NFC, or NFC after folding, may change it
  bool folds() const { return has(9); }
  bool is_pictograph() const { return has(10); }
  bool is_space() const { return has(11); }
  bool is_unseen() const { return has(12); }                // Default_Ignorable_Code_Point
  bool is_unspaced() const { return has(13); }              // a letter of a script that has no spaces between words
  bool has_joiners() const { return has(14); }              // of a script in which U+200C and U+200D matter
  bool is_rewritten() const { return has(15); }             // a typographic mark
  bool composes() const { return has(16); }                 // with what may be before it
  bool starts() const { return has(17); }                   // a character that what composes may change
  bool is_plain() const { return (record & 0x9300) == 0; }  // folding leaves it as it is, where marks are in order
  bool is_hangul() const { return word_class() == WordClass::hangul; }
  bool is_letter() const {
    return word_class() == WordClass::letter || word_class() == WordClass::hebrew || is_hangul();
  }
  bool is_word() const { return (is_letter() || word_class() == WordClass::number) && !is_unspaced(); }
  bool may_join() const { return word_class() >= WordClass::joins_letters && word_class() <= WordClass::quote; }
  bool extends() const { return word_class() == WordClass::extend || word_class() == WordClass::joiner; }

 private:
  bool has(int bit) const { return (record >> bit & 1) != 0; }
};

namespace unicode_tables {
constexpr uint32_t kEnd = 0x20000, kBlock = 16, kArea = 8;
extern const uint32_t kRecords[];
extern const uint8_t kAreaOf[], kBlocks[];
extern const uint16_t kAreas[];
CodePoint beyond(uint32_t point);
}  // namespace unicode_tables

inline CodePoint code_point(uint32_t point) {
  using namespace unicode_tables;
  if (point >= kEnd) return beyond(point);
  const uint32_t block = kAreas[kAreaOf[point / kBlock / kArea] * kArea + point / kBlock % kArea];
  return {kRecords[kBlocks[block * kBlock + point % kBlock]]};
}

// A code point of a text, or a byte that is not UTF-8: that counts as a letter.
struct Character {
  uint32_t point = 0;
  uint8_t length = 0;  // bytes; 0 at the end of the text
  bool valid = false;
  CodePoint is;

  // Whether it is, or goes on with, a letter of a script that has no spaces between words.
  bool is_in_run() const { return valid && (is.is_unspaced() || is.extends()); }
};

// What begins with a byte from 0x80 on: four bytes, or no UTF-8.
Character rare_character(std::string_view text, size_t at);

inline Character character_at(std::string_view text, size_t at) {
  if (at >= text.size()) return {};
  const size_t left = text.size() - at;
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[at + i])); };
  const auto tail = [&](size_t i) { return byte(i) - 0x80; };  // of 6 bits, if the byte continues a character
  uint32_t point = byte(0);
  uint8_t length = 1;
  if (point >= 0x80) {
    if (point >= 0xC2 && point < 0xE0 && left > 1 && tail(1) < 0x40) {
      point = (point & 0x1F) << 6 | tail(1);
      length = 2;
    } else if (point >= 0xE0 && point < 0xF0 && left > 2 && tail(1) < 0x40 && tail(2) < 0x40) {
      point = (point & 0xF) << 12 | tail(1) << 6 | tail(2);
      length = 3;
      if (point < 0x800 || point - 0xD800 < 0x800) return rare_character(text, at);
    } else {
      return rare_character(text, at);
    }
  }
  return {point, length, true, code_point(point)};
}

// Simple case folding (CaseFolding.txt, C and S) of one code point.
uint32_t fold_case(uint32_t point);

// The capital of a letter in lower case; the letter itself if it has none, and for capitals.
uint32_t capital_of(uint32_t point);

// Whether NFC may change a starter that `point`, which composes, comes after.
bool compose_together(uint32_t starter, uint32_t point);

// Which letters fold: those of the default, or the Turkish ones, where I is the capital of the dotless i; or none: a
// text as it is written.
enum class Letters : uint8_t { common, turkish, as_written };

// Replace code points by their NFC after each part was folded.
void fold_and_compose(std::vector<uint32_t>& points, Letters letters);

}  // namespace phonograd
