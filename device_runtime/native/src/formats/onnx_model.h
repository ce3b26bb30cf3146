// An ONNX model as the reader hands it on: plain data, nothing interpreted yet.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace phonograd::onnx {

// TensorProto.DataType, the ones our artifacts use.
enum class DataType : int { undefined = 0, float32 = 1, int64 = 7, boolean = 9 };

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
