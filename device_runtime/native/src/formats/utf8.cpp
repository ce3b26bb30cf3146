#include "formats/utf8.h"

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

}  // namespace phonograd
