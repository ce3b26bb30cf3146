// The ONNX reader on any bytes: a model whose parts hold together, or Error(artifacts).
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "formats/onnx_reader.h"

using namespace phonograd;

static void expect(bool good) {
  if (!good) std::abort();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const onnx::Model model = onnx::parse_model("fuzz", data, size);
    for (const onnx::Constant& constant : model.constants) {
      size_t bytes = constant.type == onnx::DataType::float32 ? 4 : constant.type == onnx::DataType::int64 ? 8 : 1;
      for (const int64_t n : constant.shape) {
        expect(n >= 0);
        bytes *= static_cast<size_t>(n);
      }
      expect(constant.bytes.size() == bytes);
    }
    for (const onnx::Node& node : model.nodes) expect(!node.op.empty());
    for (const onnx::ValueInfo& input : model.inputs) expect(!input.name.empty());
  } catch (const Error& error) {
    expect(error.status() == Status::artifacts);
    expect(std::string(error.what()).rfind("fuzz: ", 0) == 0);
  }
  return 0;
}
