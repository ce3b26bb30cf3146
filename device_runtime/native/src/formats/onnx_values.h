// The messages of an ONNX file that describe values: TensorProto and ValueInfoProto. Used by onnx_reader.cpp.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "formats/onnx_model.h"

namespace phonograd::onnx {

// Read one message. `path` names the file and `what` the message ("constant 3") in the Error(artifacts) thrown.
Constant read_constant(const std::string& path, const std::string& what, std::string_view message);
ValueInfo read_value_info(const std::string& path, const std::string& what, std::string_view message);

}  // namespace phonograd::onnx
