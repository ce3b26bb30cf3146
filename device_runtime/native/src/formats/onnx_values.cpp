#include "formats/onnx_values.h"

#include "formats/json.h"
#include "formats/protobuf_wire.h"
#include "formats/tensor_file.h"

namespace phonograd::onnx {
namespace {

using wire::Fields;

DataType data_type(const Fields& fields, int64_t number) {
  for (const DataType type : {DataType::undefined, DataType::float32, DataType::int64, DataType::boolean}) {
    if (number == static_cast<int64_t>(type)) return type;
  }
  fields.fail("data type " + std::to_string(number) + ", expected 1 (float32), 7 (int64) or 9 (bool)");
}

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

Dimension read_dimension(const std::string& path, const std::string& what, std::string_view message) {
  Fields fields(path, what + ": dimension", message);
  Dimension dimension;
  while (fields.next()) {
    switch (fields.number()) {
      case 1:  // dim_value
        fields.once();
        dimension.size = fields.integer();
        if (dimension.size < 0) fields.fail("size " + std::to_string(dimension.size) + ", expected at least 0");
        break;
      case 2:  // dim_param
        fields.once();
        dimension.name = fields.text();
        break;
      case 3:  // denotation
        break;
      default:
        fields.unknown();
    }
  }
  if (dimension.size >= 0 && !dimension.name.empty()) fields.fail("both a size and a name");
  return dimension;
}

void read_shape(const std::string& path, const std::string& what, std::string_view message, ValueInfo* info) {
  Fields fields(path, what, message);
  info->has_shape = true;
  while (fields.next()) {
    if (fields.number() != 1) fields.unknown();  // dim
    if (info->shape.size() == kMaxDimensions) fields.fail("more than 8 dimensions");
    info->shape.push_back(read_dimension(path, what, fields.bytes()));
  }
}

void read_tensor_type(const std::string& path, const std::string& what, std::string_view message, ValueInfo* info) {
  Fields fields(path, what, message);
  while (fields.next()) {
    fields.once();
    switch (fields.number()) {
      case 1:  // elem_type
        info->type = data_type(fields, fields.integer());
        break;
      case 2:  // shape
        read_shape(path, what, fields.bytes(), info);
        break;
      default:
        fields.unknown();
    }
  }
}

void read_type(const std::string& path, const std::string& what, std::string_view message, ValueInfo* info) {
  Fields fields(path, what, message);
  bool typed = false;
  while (fields.next()) {
    switch (fields.number()) {
      case 1:  // tensor_type
        read_tensor_type(path, what, fields.bytes(), info);
        break;
      case 4:  // sequence_type: of the optimizer's lists of tensors, whose values this engine does not pass through it
        fields.bytes();
        break;
      case 6:  // denotation
        continue;
      default:  // maps, optional, sparse and opaque values
        fields.unknown();
    }
    if (typed) fields.fail("two types");
    typed = true;
  }
}

}  // namespace

Constant read_constant(const std::string& path, const std::string& what, std::string_view message) {
  Fields fields(path, what, message);
  Constant constant;
  std::vector<float> reals;
  std::vector<int64_t> integers, small_integers;
  bool raw = false;
  while (fields.next()) {
    switch (fields.number()) {
      case 1:  // dims
        fields.integers(&constant.shape);
        break;
      case 2:  // data_type
        fields.once();
        constant.type = data_type(fields, fields.integer());
        break;
      case 4:
        fields.reals(&reals);
        break;
      case 5:
        fields.integers(&small_integers);
        break;
      case 7:
        fields.integers(&integers);
        break;
      case 8:
        fields.once();
        constant.name = fields.text();
        break;
      case 9:
        fields.once();
        raw = true;
        constant.bytes = fields.text();
        break;
      case 14:  // data_location
        fields.once();
        if (fields.integer() != 0) fields.fail("external data, which this reader does not follow");
        break;
      case 12:  // doc_string
      case 16:  // metadata_props
        break;
      default:  // segment, strings, double, uint64, external data
        fields.unknown();
    }
  }
  Fields named(path, what + " " + json::quote(constant.name.substr(0, 80)), {});
  if (constant.name.empty()) named.fail("no name");
  if (constant.type == DataType::undefined) named.fail("no data type");
  if (constant.shape.size() > kMaxDimensions) named.fail("more than 8 dimensions");
  const size_t size = size_of(constant.type);
  uint64_t expected = size;
  for (const int64_t n : constant.shape) {
    if (n < 0) named.fail("size " + std::to_string(n) + " in its shape");
    if (n == 0) expected = 0;
  }
  for (const int64_t n : constant.shape) {
    if (expected != 0 && __builtin_mul_overflow(expected, static_cast<uint64_t>(n), &expected)) {
      named.fail("a shape of more than 2^64 bytes");
    }
  }
  if (raw + !reals.empty() + !integers.empty() + !small_integers.empty() > 1) named.fail("it has two fields of values");
  if ((!reals.empty() && constant.type != DataType::float32) ||
      (!integers.empty() && constant.type != DataType::int64) ||
      (!small_integers.empty() && constant.type != DataType::boolean)) {
    named.fail("values of another data type");
  }
  if (!reals.empty()) constant.bytes = bytes_of(reals);
  if (!integers.empty()) constant.bytes = bytes_of(integers);
  // Anything but 0 and 1 becomes 2, which is refused below.
  for (const int64_t value : small_integers) constant.bytes += static_cast<char>(value == 0 || value == 1 ? value : 2);
  if (constant.bytes.size() != expected) {
    named.fail(std::to_string(expected) + " bytes of values expected from its shape, found " +
               std::to_string(constant.bytes.size()));
  }
  if (constant.type == DataType::boolean &&
      constant.bytes.find_first_not_of(std::string("\0\1", 2)) != std::string::npos) {
    named.fail("a truth value that is neither 0 nor 1");
  }
  return constant;
}

ValueInfo read_value_info(const std::string& path, const std::string& what, std::string_view message) {
  Fields fields(path, what, message);
  ValueInfo info;
  while (fields.next()) {
    switch (fields.number()) {
      case 1:
        fields.once();
        info.name = fields.text();
        break;
      case 2:
        fields.once();
        read_type(path, what, fields.bytes(), &info);
        break;
      case 3:  // doc_string
      case 4:  // metadata_props
        break;
      default:
        fields.unknown();
    }
  }
  if (info.name.empty()) fields.fail("no name");
  return info;
}

}  // namespace phonograd::onnx
