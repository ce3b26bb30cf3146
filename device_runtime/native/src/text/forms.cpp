#include "text/forms.h"

#include <algorithm>
#include <iterator>

#include "formats/utf8.h"
#include "text/unicode.h"

namespace phonograd {
namespace {

constexpr uint32_t kDottedI = 0x130;
constexpr std::string_view kSentenceEnds[] = {".", "!", "?", "؟", "۔", "।", "॥", "։", "።", "။", "។", "。", "！", "？"};
constexpr std::string_view kCommas[] = {",", ";", "،", "؛", "、", "，", "；"};

template <typename List>
bool holds(const List& list, std::string_view token) {
  return std::find(std::begin(list), std::end(list), token) != std::end(list);
}

std::vector<uint32_t> points_of(std::string_view text) {
  std::vector<uint32_t> points;
  for (size_t at = 0; at < text.size();) {
    const Character one = character_at(text, at);
    points.push_back(one.point);
    at += one.length;
  }
  return points;
}

std::string text_of(const std::vector<uint32_t>& points) {
  std::string text;
  for (const uint32_t point : points) append_utf8(point, &text);
  return text;
}

uint32_t capital(uint32_t point, Letters letters) {
  if (letters == Letters::turkish && point == 'i') return kDottedI;
  if (letters == Letters::turkish && point == 0x131) return 'I';
  return capital_of(point);
}

bool is_capital(uint32_t point, Letters letters) {
  if (letters == Letters::turkish && point == kDottedI) return true;
  const uint32_t lower = letters == Letters::turkish && point == 'I' ? 0x131 : fold_case(point);
  return lower != point && capital(lower, letters) == point;
}

bool is_valid(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Character one = character_at(text, at);
    if (!one.valid) return false;
    at += one.length;
  }
  return true;
}

// Georgian has capitals for words in capitals alone.
bool begins_words(uint32_t point) {
  return point < 0x1C90 || point > 0x1CBF;
}

}  // namespace

TokenKind kind_of(std::string_view token) {
  const Character first = character_at(token, 0);
  if (first.valid && (first.is.is_word() || first.is.is_unspaced())) {
    const bool keycap = token.size() > 3 && token.substr(token.size() - 3) == "\u20E3";
    return keycap ? TokenKind::emoji : TokenKind::word;
  }
  const bool emoji = first.valid && (first.is.is_pictograph() || first.is.word_class() == WordClass::flag);
  return emoji ? TokenKind::emoji : TokenKind::mark;
}

SentencePlace place_after(std::string_view token, SentencePlace before) {
  if (kind_of(token) == TokenKind::word || token == "<unk>") return SentencePlace::middle;
  if (holds(kSentenceEnds, token)) return SentencePlace::start;
  if (holds(kCommas, token)) return SentencePlace::middle;
  return before == SentencePlace::start ? before : SentencePlace::unclear;
}

WrittenTokens::WrittenTokens(std::string_view message, const WordFinder& finder, Letters letters)
    : folded_(message, finder, letters), as_written_(message, finder, Letters::as_written) {
  bool aligned = true;
  Token token;
  while (folded_.next(token.word)) {
    aligned = aligned && as_written_.next(token.written) && fold(token.written, letters) == token.word;
    tokens_.push_back({token.word, aligned ? token.written : token.word});
  }
}

std::vector<std::string_view> WrittenTokens::forms() const {
  std::vector<std::string_view> forms;
  size_t capitals = 0;
  SentencePlace place = SentencePlace::start;
  for (const Token& token : tokens_) {
    if (place == SentencePlace::middle && kind_of(token.word) == TokenKind::word) {
      forms.push_back(token.written);
      const uint32_t first = character_at(token.written, 0).point;
      capitals += is_capital(first, Letters::common) || first == kDottedI;
    }
    place = place_after(token.word, place);
  }
  if (forms.size() > 1 && 2 * capitals > forms.size()) forms.clear();
  return forms;
}

std::string show(std::string_view form, std::string_view typed, Shift shift, SentencePlace place, Letters letters) {
  if (!is_valid(form)) return std::string(form);
  std::vector<uint32_t> shown = points_of(form);
  const std::vector<uint32_t> begun = points_of(typed);
  const auto is_large = [letters](uint32_t point) { return is_capital(point, letters); };
  const auto raise = [letters](uint32_t& point) { point = capital(point, letters); };
  const bool has_capital = std::any_of(shown.begin(), shown.end(), is_large);
  if (shift == Shift::by_place) shift = place == SentencePlace::start && !has_capital ? Shift::first : Shift::none;
  bool same = begun.size() <= shown.size(), more = false;  // whether capitals were typed that the form does not have
  for (size_t at = 0; same && at < begun.size(); ++at) {
    same = fold_case(begun[at]) == fold_case(shown[at]);
    more = more || (at > 0 && is_large(begun[at]) && !is_large(shown[at]));
  }
  const auto is_small = [&](uint32_t point) { return capital(point, letters) != point; };
  if (begun.size() > 1 && std::none_of(begun.begin(), begun.end(), is_small) && is_large(begun[1])) {
    if (more || !same) shift = Shift::all;
  } else if (same && more) {
    std::copy(begun.begin(), begun.end(), shown.begin());
  } else if (!begun.empty() && is_large(begun[0]) && shift == Shift::none) {
    shift = Shift::first;
  }
  if (shift == Shift::all) std::for_each(shown.begin(), shown.end(), raise);
  if (shift == Shift::first && !shown.empty() && begins_words(capital(shown[0], letters))) raise(shown[0]);
  return text_of(shown);
}

}  // namespace phonograd
