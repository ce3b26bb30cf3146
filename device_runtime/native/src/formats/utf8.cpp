#include "formats/utf8.h"

#include <cstdio>

namespace phonograd {

size_t utf8_length(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  if (length == 0 || text.size() < length) return 0;
  for (size_t i = 1; i < length; i++) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // The second byte is bound further where the first alone would allow overlong forms, surrogates or too much.
  const unsigned second = byte(1);
  if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f)) return 0;
  if ((first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f)) return 0;
  return length;
}

uint32_t utf8_point(std::string_view character) {
  constexpr uint32_t kFirstBits[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
  uint32_t point = static_cast<unsigned char>(character[0]) & kFirstBits[character.size()];
  for (size_t i = 1; i < character.size(); i++) {
    point = point << 6 | (static_cast<unsigned char>(character[i]) & 0x3f);
  }
  return point;
}

void append_utf8(uint32_t point, std::string* out) {
  const auto tail = [&](int shift) { *out += static_cast<char>(0x80 | (point >> shift & 0x3f)); };
  if (point < 0x80) {
    *out += static_cast<char>(point);
  } else if (point < 0x800) {
    *out += static_cast<char>(0xc0 | point >> 6);
    tail(0);
  } else if (point < 0x10000) {
    *out += static_cast<char>(0xe0 | point >> 12);
    tail(6), tail(0);
  } else {
    *out += static_cast<char>(0xf0 | point >> 18);
    tail(12), tail(6), tail(0);
  }
}

namespace {

std::string escape_point(const char* format, uint32_t point) {
  char text[12];
  std::snprintf(text, sizeof text, format, static_cast<unsigned>(point));
  return text;
}

// A character as it is written between quotes of this kind.
std::string escape_character(std::string_view character, char quote) {
  const uint32_t point = utf8_point(character);
  if (point == '\n') return "\\n";
  if (point == '\r') return "\\r";
  if (point == '\t') return "\\t";
  if (point == '\\' || point == static_cast<uint32_t>(quote)) return {'\\', character[0]};
  if (point < 0x20 || (point >= 0x7F && point <= 0xA0) || point == 0xAD) return escape_point("\\x%02x", point);
  if (point == 0x2028 || point == 0x2029) return escape_point("\\u%04x", point);
  return std::string(character);
}

}  // namespace

std::string quote_text(std::string_view bytes) {
  const bool has_single = bytes.find('\'') != std::string_view::npos;
  const char quote = has_single && bytes.find('"') == std::string_view::npos ? '"' : '\'';
  std::string text(1, quote);
  while (!bytes.empty()) {
    const size_t length = utf8_length(bytes);
    text += length == 0 ? "\xEF\xBF\xBD" : escape_character(bytes.substr(0, length), quote);
    bytes.remove_prefix(length == 0 ? 1 : length);
  }
  return text + quote;
}

std::string visible(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const size_t length = utf8_length(bytes);
    const uint32_t point = length == 0 ? 0xFFFD : utf8_point(bytes.substr(0, length));
    bytes.remove_prefix(length == 0 ? 1 : length);
    const bool turns = point == 0x61C || point == 0x200E || point == 0x200F || (point >= 0x2028 && point <= 0x202E) ||
                       (point >= 0x2066 && point <= 0x2069);
    if (turns) {
      text += escape_point("\\u%04x", point);
    } else if (point < 0x20 || (point >= 0x7F && point <= 0x9F)) {
      text += escape_point("\\x%02x", point);
    } else {
      append_utf8(point, &text);
    }
  }
  return text;
}

}  // namespace phonograd
