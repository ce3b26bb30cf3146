// A small strict JSON reader and the pieces of a writer. For safetensors headers, manifest.json and JSON lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"

namespace phonograd::json {

// Deeper nesting is refused: our documents nest four deep.
constexpr int kMaxDepth = 32;

class Value;
struct Member;
using Array = std::vector<Value>;
using Object = std::vector<Member>;  // in the document's order, no key twice

// One JSON value; owns all below it. A number is an int64_t where it is written as an integer that fits, else a double.
class Value {
 public:
  using Any = std::variant<std::nullptr_t, bool, int64_t, double, std::string, Array, Object>;
  Value() = default;
  explicit Value(Any any) : any_(std::move(any)) {}

  // The value as this type, or nullptr if it is of another.
  template <class T>
  const T* as() const {
    return std::get_if<T>(&any_);
  }
  const Value* find(std::string_view key) const;  // a member; nullptr if it is missing or this is no object
  bool number(double* number) const;              // an integer or a double; false for anything else
  std::string text(size_t limit = 80) const;      // as JSON, cut after `limit` bytes: for messages

 private:
  Any any_ = nullptr;
};

struct Member {
  std::string key;
  Value value;
};

// Read one document, which is all of `text` but white space: RFC 8259 without any extension, valid UTF-8, \u escapes
// that are whole characters, finite numbers, no key twice in an object. Throws Error(status) "WHAT is not valid JSON
// (REASON at byte N)". Memory is bounded by a small multiple of the text.
Value parse(std::string_view text, Status status, const std::string& what);

// A JSON string, quotes included, in ASCII: the escapes of Python's json.dumps. A byte that is no UTF-8 becomes \ufffd.
std::string quote(std::string_view text);

// The fewest digits that read back as the same number, with a decimal point or exponent whatever the process's locale;
// "null" for NaN and infinities, which JSON lacks.
std::string number(double value);
std::string number(float value);

}  // namespace phonograd::json
