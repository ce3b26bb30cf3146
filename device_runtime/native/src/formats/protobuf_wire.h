// A strict reader of the protocol buffers wire format, field by field. The caller knows what the fields mean.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
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

  // What is done with a field of a number, which is at most 63.
  using Readers = std::initializer_list<std::pair<uint32_t, std::function<void()>>>;
  // Walk over all fields: those in `once` may appear once each, those in `repeated` any number of times, what is in
  // `skipped` says nothing that counts. Refuses all others, since they might change what the message means.
  void read(const Readers& once, const Readers& repeated = {}, std::initializer_list<uint32_t> skipped = {});

  uint32_t number() const { return number_; }

  // The current field's value.
  int64_t integer() const;
  float real() const;
  std::string_view bytes() const;
  std::string text() const { return std::string(bytes()); }
  // One value, or a packed run of them, added to `values`.
  void integers(std::vector<int64_t>* values) const;
  void reals(std::vector<float>* values) const;

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
