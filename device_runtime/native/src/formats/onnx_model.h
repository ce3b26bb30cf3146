// An ONNX model as the reader returns it: plain data, not interpreted yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace phonograd::onnx {

// TensorProto.DataType, the ones our artifacts use.
enum class DataType : int { undefined = 0, float32 = 1, int64 = 7, boolean = 9 };

// Bytes of an element; 0 for `undefined`.
constexpr size_t size_of(DataType type) {
  return type == DataType::float32 ? 4 : type == DataType::int64 ? 8 : type == DataType::boolean ? 1 : 0;
}

struct Attribute {
  enum class Kind { real, integer, text, integers };
  std::string name;
  Kind kind = Kind::integer;
  float real = 0;
  int64_t integer = 0;
  std::string text;
  std::vector<int64_t> integers;
};

struct Node {
  std::string name;
  std::string op;                    // "Gemm"
  std::string domain;                // "" or "com.microsoft"
  std::vector<std::string> inputs;   // "" where an optional input is left out
  std::vector<std::string> outputs;  // likewise
  std::vector<Attribute> attributes;

  // The attribute of that name, nullptr if the node has none.
  const Attribute* find(const char* attribute) const {
    for (const Attribute& other : attributes) {
      if (other.name == attribute) return &other;
    }
    return nullptr;
  }
  // The attribute's value, which is of that type; `otherwise` if the node has none.
  int64_t integer(const char* attribute, int64_t otherwise) const {
    const Attribute* found = find(attribute);
    return found == nullptr ? otherwise : found->integer;
  }
  float real(const char* attribute, float otherwise) const {
    const Attribute* found = find(attribute);
    return found == nullptr ? otherwise : found->real;
  }
  std::string text(const char* attribute, const char* otherwise) const {
    const Attribute* found = find(attribute);
    return found == nullptr ? otherwise : found->text;
  }
};

// A dimension: a number, or a name when it is free until the graph is planned.
struct Dimension {
  int64_t size = -1;  // -1: free
  std::string name;
};

struct ValueInfo {
  std::string name;
  DataType type = DataType::undefined;
  bool has_shape = false;
  std::vector<Dimension> shape;
};

// An initializer; `bytes` holds its values little-endian, exactly product(shape) * size of type.
struct Constant {
  std::string name;
  DataType type = DataType::undefined;
  std::vector<int64_t> shape;
  std::string bytes;
};

struct Model {
  std::string path;  // for messages
  int64_t ir_version = 0;
  std::vector<Node> nodes;  // in topological order, as the file has them
  std::vector<ValueInfo> inputs;
  std::vector<ValueInfo> outputs;
  std::vector<Constant> constants;
};

}  // namespace phonograd::onnx
