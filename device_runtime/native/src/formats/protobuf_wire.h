// A strict reader of the protocol buffers wire format, field by field. The caller knows what the fields mean.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace phonograd::wire {

// Walks over the fields of one message. Nothing is copied: views point into the message. Every method throws
// Error(artifacts) "PATH: WHAT: REASON" for a message that ends within a field, a group, field number 0, and a field
// whose wire type does not fit the method that asks for its value.
class Fields {
 public:
  // `what` names the message in errors ("node 3"); `path` the file, and must outlive this.
  Fields(const std::string& path, std::string what, std::string_view message)
      : path_(path), what_(std::move(what)), rest_(message) {}

  bool next();  // to the next field; false at the end of the message
  uint32_t number() const { return number_; }

  // The current field's value.
  int64_t integer() const;
  float real() const;
  std::string_view bytes() const;
  std::string text() const { return std::string(bytes()); }
  // One value, or a packed run of them, added to `values`.
  void integers(std::vector<int64_t>* values) const;
  void reals(std::vector<float>* values) const;

  // For a field that may appear once in a message: refuses a second one. Numbers up to 63.
  void once();
  // For a field that the caller does not know and that might change what the message means.
  [[noreturn]] void unknown() const;
  [[noreturn]] void fail(const std::string& reason) const;

  const std::string& path() const { return path_; }
  const std::string& what() const { return what_; }

 private:
  enum class Type { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

  uint64_t take_varint(std::string_view* from) const;
  std::string_view take(uint64_t bytes);

  const std::string& path_;
  std::string what_;
  std::string_view rest_;
  uint64_t seen_ = 0;
  uint32_t number_ = 0;
  Type type_ = Type::varint;
  uint64_t varint_ = 0;
  std::string_view bytes_;  // of a fixed32 or fixed64 too
};

}  // namespace phonograd::wire
