#include "formats/json.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>

#include "base/classic_locale.h"
#include "formats/utf8.h"

namespace phonograd::json {
namespace {

class Parser {
 public:
  Parser(std::string_view text, Status status, const std::string& what) : text_(text), status_(status), what_(what) {}

  Value document() {
    Value value = parse_value(0);
    skip_space();
    if (at_ != text_.size()) fail("something follows the value");
    return value;
  }

 private:
  [[noreturn]] void fail(const std::string& reason) const {
    throw Error(status_, what_ + " is not valid JSON (" + reason + " at byte " + std::to_string(at_) + ")");
  }

  int peek() const { return at_ < text_.size() ? static_cast<unsigned char>(text_[at_]) : -1; }

  void skip_space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) {
      at_++;
    }
  }

  bool take(char c) {
    skip_space();
    if (peek() != c) return false;
    at_++;
    return true;
  }

  void expect(char c) {
    if (!take(c)) fail(std::string("expected '") + c + "'");
  }

  bool take_word(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  Value parse_value(int depth) {
    if (depth > kMaxDepth) fail("nested deeper than " + std::to_string(kMaxDepth));
    skip_space();
    const int c = peek();
    if (c == '{') return Value(parse_object(depth));
    if (c == '[') return Value(parse_array(depth));
    if (c == '"') return Value(parse_string());
    if (c == '-' || (c >= '0' && c <= '9')) return parse_number();
    if (take_word("true")) return Value(true);
    if (take_word("false")) return Value(false);
    if (take_word("null")) return Value(nullptr);
    fail("expected a value");
  }

  Array parse_array(int depth) {
    Array array;
    expect('[');
    if (take(']')) return array;
    do {
      array.push_back(parse_value(depth + 1));
    } while (take(','));
    expect(']');
    return array;
  }

  Object parse_object(int depth) {
    Object object;
    expect('{');
    if (take('}')) return object;
    do {
      skip_space();
      if (peek() != '"') fail("expected a key");
      std::string key = parse_string();
      expect(':');
      object.push_back({std::move(key), parse_value(depth + 1)});
    } while (take(','));
    expect('}');
    std::vector<std::string_view> keys;
    for (const Member& member : object) keys.push_back(member.key);
    std::sort(keys.begin(), keys.end());
    if (std::adjacent_find(keys.begin(), keys.end()) != keys.end()) fail("a key appears twice");
    return object;
  }

  uint32_t parse_hex4() {
    uint32_t value = 0;
    for (int i = 0; i < 4; i++, at_++) {
      const int c = peek();
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) fail("expected four hexadecimal digits");
      value = value << 4 | static_cast<uint32_t>(digit);
    }
    return value;
  }

  void parse_escape(std::string* out) {
    const int c = peek();
    at_++;
    switch (c) {
      case '"':
      case '\\':
      case '/':
        *out += static_cast<char>(c);
        return;
      case 'b':
        *out += '\b';
        return;
      case 'f':
        *out += '\f';
        return;
      case 'n':
        *out += '\n';
        return;
      case 'r':
        *out += '\r';
        return;
      case 't':
        *out += '\t';
        return;
      case 'u':
        break;
      default:
        at_--;
        fail("unknown escape");
    }
    uint32_t point = parse_hex4();
    if (point >= 0xd800 && point < 0xdc00 && take_word("\\u")) {
      const uint32_t low = parse_hex4();
      if (low < 0xdc00 || low > 0xdfff) fail("half of a surrogate pair");
      point = 0x10000 + ((point - 0xd800) << 10) + (low - 0xdc00);
    } else if (point >= 0xd800 && point <= 0xdfff) {
      fail("half of a surrogate pair");
    }
    append_utf8(point, out);
  }

  std::string parse_string() {
    std::string out;
    at_++;  // the quote
    for (;;) {
      const int c = peek();
      if (c < 0) fail("a string does not end");
      if (c < 0x20) fail("a control character in a string");
      if (c == '"') break;
      if (c == '\\') {
        at_++;
        parse_escape(&out);
        continue;
      }
      const size_t length = utf8_length(text_.substr(at_));
      if (length == 0) fail("not UTF-8");
      out += text_.substr(at_, length);
      at_ += length;
    }
    at_++;
    return out;
  }

  void take_digits() {
    if (peek() < '0' || peek() > '9') fail("expected a digit");
    while (peek() >= '0' && peek() <= '9') at_++;
  }

  Value parse_number() {
    const size_t start = at_;
    if (peek() == '-') at_++;
    if (peek() == '0') {
      at_++;
    } else {
      take_digits();
    }
    bool integral = true;
    if (peek() == '.') {
      integral = false;
      at_++;
      take_digits();
    }
    if (peek() == 'e' || peek() == 'E') {
      integral = false;
      at_++;
      if (peek() == '+' || peek() == '-') at_++;
      take_digits();
    }
    const std::string digits(text_.substr(start, at_ - start));
    if (integral && digits.size() <= 20) {
      errno = 0;
      const long long value = std::strtoll(digits.c_str(), nullptr, 10);
      if (errno == 0) return Value(static_cast<int64_t>(value));
    }
    const ClassicLocale classic;
    const double value = std::strtod(digits.c_str(), nullptr);
    if (!std::isfinite(value)) fail("a number too large");
    return Value(value);
  }

  std::string_view text_;
  Status status_;
  const std::string& what_;
  size_t at_ = 0;
};

}  // namespace

const Value* Value::find(std::string_view key) const {
  if (const auto* object = as<Object>()) {
    for (const Member& member : *object) {
      if (member.key == key) return &member.value;
    }
  }
  return nullptr;
}

bool Value::number(double* number) const {
  if (const auto* integer = as<int64_t>()) {
    *number = static_cast<double>(*integer);
  } else if (const auto* real = as<double>()) {
    *number = *real;
  } else {
    return false;
  }
  return true;
}

Value parse(std::string_view text, Status status, const std::string& what) {
  return Parser(text, status, what).document();
}

}  // namespace phonograd::json
