#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "random_graph.h"

namespace phonograd {

namespace {

using onnx::DataType;
using Names = std::vector<std::string>;

constexpr int64_t kSizes[] = {1, 2, 3, 4, 5, 7, 17};

// Any name of the graph, or none.
std::string some_name(const onnx::Model& model, Decisions& d) {
  const size_t kind = d.below(8);
  if (kind == 0 && !model.inputs.empty()) return model.inputs[d.below(model.inputs.size())].name;
  if (kind == 1 && !model.constants.empty()) return model.constants[d.below(model.constants.size())].name;
  if (kind == 2 || model.nodes.empty()) return "";
  const Names& outputs = model.nodes[d.below(model.nodes.size())].outputs;
  return outputs.empty() ? "" : outputs[d.below(outputs.size())];
}

void change_node(onnx::Model& model, onnx::Node& node, Decisions& d) {
  switch (d.below(6)) {
    case 0:
    case 1:
      if (!node.inputs.empty()) node.inputs[d.below(node.inputs.size())] = some_name(model, d);
      break;
    case 2:
      if (!node.outputs.empty()) node.outputs[d.below(node.outputs.size())] = some_name(model, d);
      break;
    case 3:
      node.inputs.push_back(some_name(model, d));
      break;
    case 4:
      if (!node.attributes.empty()) node.attributes[d.below(node.attributes.size())].integer ^= 1;
      break;
    default:
      if (!node.attributes.empty()) node.attributes.pop_back();
  }
}

void change_constant(onnx::Constant& constant, Decisions& d) {
  if (constant.type != DataType::int64 || constant.bytes.size() < sizeof(int64_t)) return;
  const int64_t values[] = {0, 1, -1, 2, 3, INT64_MAX, INT64_MIN};
  const size_t place = d.below(constant.bytes.size() / sizeof(int64_t));
  std::memcpy(&constant.bytes[place * sizeof(int64_t)], &values[d.below(std::size(values))], sizeof(int64_t));
}

}  // namespace

void change_graph(onnx::Model& model, Decisions& d) {
  for (size_t changes = d.one_in(2) ? d.below(4) : 0; changes > 0 && !model.nodes.empty(); --changes) {
    const size_t at = d.below(model.nodes.size()), to = d.below(model.nodes.size());
    const auto begin = model.nodes.begin();
    switch (d.below(10)) {
      case 0:
        model.nodes.erase(begin + static_cast<int64_t>(at));
        break;
      case 1: {
        onnx::Node twin = model.nodes[at];
        for (std::string& name : twin.outputs) name += name.empty() || d.one_in(8) ? "" : "'";
        model.nodes.insert(begin + static_cast<int64_t>(at) + 1, twin);
        break;
      }
      case 2:
        std::swap(model.nodes[at], model.nodes[to]);
        break;
      case 3:
      case 4:
      case 5:
        change_node(model, model.nodes[at], d);
        break;
      case 6: {
        onnx::ValueInfo info;
        info.name = some_name(model, d);
        model.outputs.push_back(info);
        break;
      }
      case 7:
        if (!model.constants.empty()) change_constant(model.constants[d.below(model.constants.size())], d);
        break;
      case 8:
        if (!model.inputs.empty()) {
          onnx::ValueInfo& info = model.inputs[d.below(model.inputs.size())];
          if (!info.shape.empty()) info.shape[d.below(info.shape.size())] = {kSizes[d.below(std::size(kSizes))], ""};
        }
        break;
      default:  // an input that some node's result is to be
        model.inputs.push_back({some_name(model, d), DataType::float32, true, {{2, ""}}});
    }
  }
}

}  // namespace phonograd
