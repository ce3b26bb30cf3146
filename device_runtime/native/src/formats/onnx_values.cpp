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
  const auto read_size = [&] {
    dimension.size = fields.integer();
    if (dimension.size < 0) fields.fail("size " + std::to_string(dimension.size) + ", expected at least 0");
  };
  // dim_value, dim_param. Skipped: denotation.
  fields.read({{1, read_size}, {2, [&] { dimension.name = fields.text(); }}}, {}, {3});
  if (dimension.size >= 0 && !dimension.name.empty()) fields.fail("both a size and a name");
  return dimension;
}

void read_shape(const std::string& path, const std::string& what, std::string_view message, ValueInfo* info) {
  Fields fields(path, what, message);
  info->has_shape = true;
  const auto add_dimension = [&] {
    if (info->shape.size() == kMaxDimensions) fields.fail("more than 8 dimensions");
    info->shape.push_back(read_dimension(path, what, fields.bytes()));
  };
  fields.read({}, {{1, add_dimension}});
}

void read_tensor_type(const std::string& path, const std::string& what, std::string_view message, ValueInfo* info) {
  Fields fields(path, what, message);
  fields.read({{1, [&] { info->type = data_type(fields, fields.integer()); }},
               {2, [&] { read_shape(path, what, fields.bytes(), info); }}});
}

void read_type(const std::string& path, const std::string& what, std::string_view message, ValueInfo* info) {
  Fields fields(path, what, message);
  bool typed = false;
  const auto typed_once = [&] {
    if (typed) fields.fail("two types");
    typed = true;
  };
  const auto read_tensor = [&] {
    read_tensor_type(path, what, fields.bytes(), info);
    typed_once();
  };
  // sequence_type (4) is of the optimizer's lists of tensors, whose values this engine does not pass through it. Not
  // maps, optional, sparse and opaque values. Skipped: denotation.
  fields.read({}, {{1, read_tensor}, {4, [&] { fields.bytes(), typed_once(); }}}, {6});
}

}  // namespace

Constant read_constant(const std::string& path, const std::string& what, std::string_view message) {
  Fields fields(path, what, message);
  Constant constant;
  std::vector<float> reals;
  std::vector<int64_t> integers, small_integers;
  bool raw = false;
  const auto read_raw = [&] {
    raw = true;
    constant.bytes = fields.text();
  };
  const auto refuse_external = [&] {
    if (fields.integer() != 0) fields.fail("external data, which this reader does not follow");
  };
  // Not segment, strings, double, uint64 and external data. Skipped: doc_string, metadata_props.
  fields.read({{2, [&] { constant.type = data_type(fields, fields.integer()); }},
               {8, [&] { constant.name = fields.text(); }},
               {9, read_raw},
               {14, refuse_external}},
              {{1, [&] { fields.integers(&constant.shape); }},
               {4, [&] { fields.reals(&reals); }},
               {5, [&] { fields.integers(&small_integers); }},
               {7, [&] { fields.integers(&integers); }}},
              {12, 16});
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
  // Skipped: doc_string, metadata_props.
  fields.read({{1, [&] { info.name = fields.text(); }}, {2, [&] { read_type(path, what, fields.bytes(), &info); }}}, {},
              {3, 4});
  if (info.name.empty()) fields.fail("no name");
  return info;
}

}  // namespace phonograd::onnx
