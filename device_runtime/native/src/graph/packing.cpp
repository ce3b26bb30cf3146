#include "graph/packing.h"

#include <algorithm>

#include "base/error.h"

namespace phonograd {
namespace {

constexpr const char* kTokens = "tokens";
constexpr const char* kBufferSuffix = "_grad.accumulation.buffer";

using Shapes = std::map<std::string, std::vector<int64_t>>;

bool gathers(const onnx::Node& node, const char* by) {
  return node.op == "Gather" && node.inputs.size() == 2 && node.inputs[1] == by && node.integer("axis", 0) == 0;
}

bool scatters(const onnx::Node& node) {
  return node.op == "GatherGrad" && node.inputs.size() == 3 && node.inputs[1] == kCandidates &&
         node.integer("axis", 0) == 0;
}

void make_identity(onnx::Node& node, const std::string& of) {
  node.op = "Identity";
  node.domain.clear();
  node.inputs = {of};
  node.attributes.clear();
}

// Gives an input `count` rows. Returns the shape that it had.
std::vector<int64_t> resize(const onnx::Model& model, onnx::ValueInfo& input, int64_t count) {
  std::vector<int64_t> shape;
  for (const onnx::Dimension& dimension : input.shape) shape.push_back(dimension.size);
  if (shape.empty()) {
    throw Error(Status::artifacts, model.path + ": input '" + input.name + "' has no rows; export the artifacts again");
  }
  input.shape[0] = {count, ""};
  return shape;
}

[[noreturn]] void refuse(const onnx::Model& model, const onnx::Node& node, const std::string& why) {
  throw Error(Status::artifacts, model.path + ": node '" + node.name + "' (" + node.op + "): " + why +
                                     ", where words are sampled; export the artifacts again");
}

// Whoever else reads words, or a parameter of which rows are packed, would see other ones.
void check_inputs(const onnx::Model& model, const onnx::Node& node, const Shapes& packed) {
  const bool of_words = gathers(node, kTokens) || node.op == "GatherGrad";
  for (const std::string& input : node.inputs) {
    if (input == kCandidates || (input == kTokens && !of_words)) refuse(model, node, "reads '" + input + "'");
    const bool rows = node.op == "Shape" || node.op == "Identity" || gathers(node, kTokens);
    if (packed.count(input) != 0 && !rows)
      refuse(model, node, "reads '" + input + "' beside the gathering of its rows");
  }
}

}  // namespace

Shapes pack_candidates(onnx::Model& model, int64_t count) {
  Shapes packed;
  for (const onnx::Node& node : model.nodes) {
    if (gathers(node, kCandidates) || gathers(node, kTokens)) packed[node.inputs[0]];
  }
  Shapes inputs;
  for (onnx::ValueInfo& input : model.inputs) {
    const bool parameter = packed.count(input.name) != 0;
    const std::string& name = input.name;
    const size_t suffix = name.size() - std::min(name.size(), std::string(kBufferSuffix).size());
    const bool buffer = name.substr(suffix) == kBufferSuffix && packed.count(name.substr(0, suffix)) != 0;
    if (!parameter && !buffer) continue;
    const std::vector<int64_t> shape = resize(model, input, count);
    if (parameter) inputs[name] = shape;
  }
  for (onnx::Node& node : model.nodes) {
    if (gathers(node, kCandidates)) {
      if (inputs.count(node.inputs[0]) == 0) refuse(model, node, "gathers rows of '" + node.inputs[0] + "'");
      make_identity(node, node.inputs[0]);
    } else if (scatters(node)) {
      make_identity(node, node.inputs[2]);
    }
    check_inputs(model, node, inputs);
  }
  return inputs;
}

}  // namespace phonograd
