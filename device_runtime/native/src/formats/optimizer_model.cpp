#include "formats/optimizer_model.h"

#include "base/error.h"
#include "formats/onnx_reader.h"

namespace phonograd {

namespace {

[[noreturn]] void refuse(const onnx::Model& model, const onnx::Node& node, const std::string& reason) {
  throw Error(Status::artifacts,
              model.path + ": node '" + node.name + "' (" + node.domain + "." + node.op + "): " + reason);
}

float clip_norm_of(const onnx::Model& model, const onnx::Node& node) {
  float norm = 1;  // ONNX Runtime's default
  for (const onnx::Attribute& attribute : node.attributes) {
    if (attribute.name == "max_norm" && attribute.kind == onnx::Attribute::Kind::real) {
      norm = attribute.real;
    } else if (attribute.name != "norm_type" || attribute.text != "fro") {
      refuse(model, node, "attribute '" + attribute.name + "' is not known to the engine");
    }
  }
  if (!(norm > 0)) refuse(model, node, "max_norm is " + std::to_string(norm) + ", expected more than 0");
  return norm;
}

}  // namespace

float read_clip_norm(const std::string& path) {
  const onnx::Model model = onnx::read_model(path);
  float norm = 0;
  bool descends = false;
  for (const onnx::Node& node : model.nodes) {
    if (node.domain == "com.microsoft" && node.op == "InplaceClipGradNorm" && norm == 0 && !descends) {
      norm = clip_norm_of(model, node);
    } else if (node.domain == "com.microsoft" && node.op == "SGDOptimizerV2" && !descends) {
      descends = true;
    } else {
      refuse(model, node, "expected SGDOptimizerV2, and before it at most one InplaceClipGradNorm");
    }
  }
  if (!descends) {
    throw Error(Status::artifacts, path + ": no SGDOptimizerV2; the engine trains by SGD only");
  }
  return norm;
}

}  // namespace phonograd
