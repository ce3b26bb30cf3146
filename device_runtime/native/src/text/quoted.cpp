#include "text/quoted.h"

#include <cstdint>
#include <cstdio>

#include "formats/utf8.h"

namespace phonograd {
namespace {

std::string escaped(const char* format, uint32_t point) {
  char text[12];
  std::snprintf(text, sizeof text, format, static_cast<unsigned>(point));
  return text;
}

// One character of what stands between quotes of this kind.
std::string shown(std::string_view character, char quote) {
  const uint32_t point = utf8_point(character);
  if (point == '\n') return "\\n";
  if (point == '\r') return "\\r";
  if (point == '\t') return "\\t";
  if (point == '\\' || point == static_cast<uint32_t>(quote)) return {'\\', character[0]};
  if (point < 0x20 || (point >= 0x7F && point <= 0xA0) || point == 0xAD) return escaped("\\x%02x", point);
  if (point == 0x2028 || point == 0x2029) return escaped("\\u%04x", point);
  return std::string(character);
}

}  // namespace

std::string quoted(std::string_view bytes) {
  const bool has_single = bytes.find('\'') != std::string_view::npos;
  const char quote = has_single && bytes.find('"') == std::string_view::npos ? '"' : '\'';
  std::string text(1, quote);
  while (!bytes.empty()) {
    const size_t length = utf8_length(bytes);
    text += length == 0 ? "\xEF\xBF\xBD" : shown(bytes.substr(0, length), quote);
    bytes.remove_prefix(length == 0 ? 1 : length);
  }
  return text + quote;
}

}  // namespace phonograd
