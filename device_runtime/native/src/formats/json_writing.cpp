#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "base/classic_locale.h"
#include "formats/json.h"
#include "formats/utf8.h"

namespace phonograd::json {
namespace {

// Appends the value as JSON until `out` holds more than `limit` bytes.
void append_json(const Value& value, size_t limit, std::string* out) {
  if (out->size() > limit) return;
  const char* separator = "";
  if (const auto* array = value.as<Array>()) {
    *out += '[';
    for (const Value& element : *array) {
      if (out->size() > limit) return;
      *out += separator;
      append_json(element, limit, out);
      separator = ", ";
    }
    *out += ']';
  } else if (const auto* object = value.as<Object>()) {
    *out += '{';
    for (const Member& member : *object) {
      if (out->size() > limit) return;
      *out += separator + quote(member.key) + ": ";
      append_json(member.value, limit, out);
      separator = ", ";
    }
    *out += '}';
  } else if (const auto* text = value.as<std::string>()) {
    *out += quote(*text);
  } else if (const auto* integer = value.as<int64_t>()) {
    *out += std::to_string(*integer);
  } else if (const auto* real = value.as<double>()) {
    *out += number(*real);
  } else if (const auto* boolean = value.as<bool>()) {
    *out += *boolean ? "true" : "false";
  } else {
    *out += "null";
  }
}

// The first precision, from `few` digits on, that `same` says reads back as the number.
template <class Same>
std::string shortest(double value, int few, int enough, Same same) {
  if (!std::isfinite(value)) return "null";
  const ClassicLocale classic;
  char text[40];
  for (int digits = few; digits <= enough; digits++) {
    std::snprintf(text, sizeof text, "%.*g", digits, value);
    if (same(text)) break;
  }
  std::string out = text;
  return out.find_first_of(".e") == std::string::npos ? out + ".0" : out;
}

}  // namespace

std::string Value::text(size_t limit) const {
  std::string out;
  append_json(*this, limit, &out);
  if (out.size() > limit) out = out.substr(0, limit) + "...";
  return out;
}

std::string quote(std::string_view text) {
  std::string out = "\"";
  char escape[8];
  const auto append_unit = [&](uint32_t unit) {
    std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(unit));
    out += escape;
  };
  while (!text.empty()) {
    const char c = text[0];
    const size_t length = utf8_length(text);
    const size_t at = std::string_view("\"\\\n\r\t\f\b").find(c);
    if (at != std::string_view::npos) {
      out += '\\';
      out += "\"\\nrtfb"[at];
    } else if (c >= 0x20 && c <= 0x7e) {
      out += c;
    } else if (length == 0) {
      append_unit(0xfffd);
    } else {
      const uint32_t point = utf8_point(text.substr(0, length));
      if (point < 0x10000) {
        append_unit(point);
      } else {
        append_unit(0xd800 + ((point - 0x10000) >> 10));
        append_unit(0xdc00 + ((point - 0x10000) & 0x3ff));
      }
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return out += '"';
}

std::string number(double value) {
  return shortest(value, 15, 17, [&](const char* text) { return std::strtod(text, nullptr) == value; });
}

std::string number(float value) {
  return shortest(value, 6, 9, [&](const char* text) { return std::strtof(text, nullptr) == value; });
}

}  // namespace phonograd::json
