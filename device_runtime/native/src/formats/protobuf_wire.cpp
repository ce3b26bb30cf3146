#include "formats/protobuf_wire.h"

#include <algorithm>
#include <cstring>

namespace phonograd::wire {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "fixed-width fields are copied, not converted");

void Fields::fail(const std::string& reason) const {
  throw Error(Status::artifacts, path_ + ": " + what_ + ": " + reason + "; export the folder again");
}

void Fields::read(const Readers& once, const Readers& repeated, std::initializer_list<uint32_t> skipped) {
  const auto reader = [this](const Readers& readers) {
    return std::find_if(readers.begin(), readers.end(), [this](const auto& one) { return one.first == number_; });
  };
  while (next()) {
    if (const auto* single = reader(once); single != once.end()) {
      const uint64_t bit = uint64_t{1} << number_;
      if (seen_ & bit) fail("field " + std::to_string(number_) + " appears twice");
      seen_ |= bit;
      single->second();
    } else if (const auto* many = reader(repeated); many != repeated.end()) {
      many->second();
    } else if (std::find(skipped.begin(), skipped.end(), number_) == skipped.end()) {
      fail("field " + std::to_string(number_) + " is unknown to this reader");
    }
  }
}

uint64_t Fields::take_varint(std::string_view* from) const {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (from->empty()) fail("ends within a number");
    const uint64_t byte = static_cast<unsigned char>((*from)[0]);
    from->remove_prefix(1);
    if (shift == 63 && byte > 1) break;
    value |= (byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  fail("a number of more than 64 bits");
}

std::string_view Fields::take(uint64_t bytes) {
  if (bytes > rest_.size()) {
    fail("ends within field " + std::to_string(number_) + " (" + std::to_string(bytes) + " bytes announced, " +
         std::to_string(rest_.size()) + " left)");
  }
  const std::string_view taken = rest_.substr(0, static_cast<size_t>(bytes));
  rest_.remove_prefix(taken.size());
  return taken;
}

bool Fields::next() {
  if (rest_.empty()) return false;
  const uint64_t tag = take_varint(&rest_);
  if (tag >> 3 == 0 || tag >> 32 != 0) fail("field number " + std::to_string(tag >> 3) + " is out of range");
  number_ = static_cast<uint32_t>(tag >> 3);
  type_ = static_cast<Type>(tag & 7);
  switch (type_) {
    case Type::varint:
      varint_ = take_varint(&rest_);
      return true;
    case Type::fixed64:
      bytes_ = take(8);
      return true;
    case Type::bytes:
      bytes_ = take(take_varint(&rest_));
      return true;
    case Type::fixed32:
      bytes_ = take(4);
      return true;
  }
  fail("field " + std::to_string(number_) + " has wire type " + std::to_string(tag & 7) + ", expected 0, 1, 2 or 5");
}

int64_t Fields::integer() const {
  if (type_ != Type::varint) fail("field " + std::to_string(number_) + " is not a whole number");
  return static_cast<int64_t>(varint_);
}

float Fields::real() const {
  if (type_ != Type::fixed32) fail("field " + std::to_string(number_) + " is not a float");
  float value;
  std::memcpy(&value, bytes_.data(), sizeof value);
  return value;
}

std::string_view Fields::bytes() const {
  if (type_ != Type::bytes) fail("field " + std::to_string(number_) + " is not a text or message");
  return bytes_;
}

void Fields::integers(std::vector<int64_t>* values) const {
  if (type_ != Type::bytes) return values->push_back(integer());
  for (std::string_view run = bytes_; !run.empty();) values->push_back(static_cast<int64_t>(take_varint(&run)));
}

void Fields::reals(std::vector<float>* values) const {
  if (type_ != Type::bytes) return values->push_back(real());
  if (bytes_.size() % sizeof(float) != 0) fail("field " + std::to_string(number_) + " is cut within a float");
  const size_t before = values->size();
  values->resize(before + bytes_.size() / sizeof(float));
  if (!bytes_.empty()) std::memcpy(values->data() + before, bytes_.data(), bytes_.size());
}

}  // namespace phonograd::wire
