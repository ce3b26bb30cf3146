#include "formats/onnx_reader.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/files.h"
#include "formats/json.h"
#include "formats/onnx_values.h"
#include "formats/protobuf_wire.h"

namespace phonograd::onnx {
namespace {

using wire::Fields;

constexpr int64_t kOldestIr = 3, kNewestIr = 13;
constexpr int64_t kOldestOpset = 12, kNewestOpset = 21;
// A file of 16 MiB could name millions of nodes and values, each many times larger in memory; our largest graph has 80.
constexpr size_t kMaxCount = 1 << 16;
constexpr size_t kMaxAttributes = 64;  // of a node

std::string quoted(const std::string& name) {
  return json::quote(name.substr(0, 80));
}

// "ai.onnx" is another name of the standard operators' domain.
std::string domain_of(std::string_view name) {
  return name == "ai.onnx" ? "" : std::string(name);
}

Attribute read_attribute(const std::string& path, const std::string& what, std::string_view message) {
  Fields fields(path, what + ": attribute", message);
  Attribute attribute;
  int64_t type = 0;
  uint32_t value_field = 0;
  const auto value_of = [&](uint32_t field) {
    if (value_field != 0 && value_field != field) fields.fail("two values");
    if (field != 8) fields.once();
    value_field = field;
  };
  while (fields.next()) {
    switch (fields.number()) {
      case 1:
        fields.once();
        attribute.name = fields.text();
        break;
      case 2:
        value_of(2);
        attribute.real = fields.real();
        break;
      case 3:
        value_of(3);
        attribute.integer = fields.integer();
        break;
      case 4:
        value_of(4);
        attribute.text = fields.text();
        break;
      case 8:
        value_of(8);
        fields.integers(&attribute.integers);
        break;
      case 20:
        fields.once();
        type = fields.integer();
        break;
      case 13:  // doc_string
        break;
      default:  // tensors, graphs, lists of floats and strings, types, references to a function's attributes
        fields.unknown();
    }
  }
  Fields named(path, what + ": attribute " + quoted(attribute.name), {});
  if (attribute.name.empty()) named.fail("no name");
  // AttributeProto.AttributeType, and the field that holds a value of it. A writer may leave out a zero or empty value.
  constexpr struct {
    int64_t type;
    uint32_t field;
    Attribute::Kind kind;
  } kKinds[] = {{1, 2, Attribute::Kind::real},
                {2, 3, Attribute::Kind::integer},
                {3, 4, Attribute::Kind::text},
                {7, 8, Attribute::Kind::integers}};
  for (const auto& kind : kKinds) {
    if (kind.type != type) continue;
    if (value_field != 0 && value_field != kind.field) named.fail("a value that is not of its type");
    attribute.kind = kind.kind;
    return attribute;
  }
  named.fail("type " + std::to_string(type) + ", expected 1 (float), 2 (int), 3 (string) or 7 (ints)");
}

// "node 3, Gemm "logits"": what errors about it call it.
std::string label_of(const std::string& path, size_t index, std::string_view message) {
  std::string label = "node " + std::to_string(index);
  Fields fields(path, label, message);
  std::string op, name;
  while (fields.next()) {
    if (fields.number() == 3) name = fields.text();
    if (fields.number() == 4) op = fields.text();
  }
  if (!op.empty()) label += ", " + (quoted(op) == '"' + op + '"' ? op : quoted(op));
  return name.empty() ? label : label + " " + quoted(name);
}

Node read_node(const std::string& path, const std::string& label, std::string_view message) {
  Fields fields(path, label, message);
  Node node;
  while (fields.next()) {
    switch (fields.number()) {
      case 1:
        node.inputs.push_back(fields.text());
        break;
      case 2:
        node.outputs.push_back(fields.text());
        break;
      case 3:
        fields.once();
        node.name = fields.text();
        break;
      case 4:
        fields.once();
        node.op = fields.text();
        break;
      case 5: {
        Attribute attribute = read_attribute(path, label, fields.bytes());
        for (const Attribute& other : node.attributes) {
          if (other.name == attribute.name) fields.fail("attribute " + quoted(attribute.name) + " appears twice");
        }
        node.attributes.push_back(std::move(attribute));
        if (node.attributes.size() > kMaxAttributes) fields.fail("more than 64 attributes");
        break;
      }
      case 7:
        fields.once();
        node.domain = domain_of(fields.bytes());
        break;
      case 6:  // doc_string
      case 9:  // metadata_props
        break;
      default:  // overload: only functions have one
        fields.unknown();
    }
  }
  if (node.op.empty()) fields.fail("no operator");
  return node;
}

void read_graph(const std::string& path, std::string_view message, Model* model, std::vector<std::string>* labels) {
  Fields fields(path, "graph", message);
  while (fields.next()) {
    if (std::max({model->nodes.size(), model->constants.size(), model->inputs.size(), model->outputs.size()}) >=
        kMaxCount) {
      fields.fail("more than 65536 nodes or values");
    }
    switch (fields.number()) {
      case 1:
        labels->push_back(label_of(path, labels->size(), fields.bytes()));
        model->nodes.push_back(read_node(path, labels->back(), fields.bytes()));
        break;
      case 5:
        model->constants.push_back(
            read_constant(path, "constant " + std::to_string(model->constants.size()), fields.bytes()));
        break;
      case 11:
        model->inputs.push_back(read_value_info(path, "input " + std::to_string(model->inputs.size()), fields.bytes()));
        break;
      case 12:
        model->outputs.push_back(
            read_value_info(path, "output " + std::to_string(model->outputs.size()), fields.bytes()));
        break;
      case 2:   // name
      case 10:  // doc_string
      case 13:  // value_info: shapes are inferred here, not believed
      case 16:  // metadata_props
        break;
      default:  // quantization, sparse constants
        fields.unknown();
    }
  }
}

using Opsets = std::map<std::string, int64_t>;

void read_opset(const std::string& path, std::string_view message, Opsets* opsets) {
  Fields fields(path, "opset", message);
  std::string domain;
  int64_t version = 0;
  while (fields.next()) {
    fields.once();
    switch (fields.number()) {
      case 1:
        domain = domain_of(fields.bytes());
        break;
      case 2:
        version = fields.integer();
        break;
      default:
        fields.unknown();
    }
  }
  if (domain.empty() && (version < kOldestOpset || version > kNewestOpset)) {
    fields.fail("version " + std::to_string(version) + " of the standard operators, expected " +
                std::to_string(kOldestOpset) + " to " + std::to_string(kNewestOpset));
  }
  if (domain == "com.microsoft" && version != 1) {
    fields.fail("version " + std::to_string(version) + " of com.microsoft, expected 1");
  }
  if (!opsets->emplace(domain, version).second) fields.fail("domain " + quoted(domain) + " appears twice");
}

// Every value has one maker and is made before it is used (an input with a constant as its default has two); every
// node's operator is of an announced domain.
void check_flow(const Model& model, const std::vector<std::string>& labels, const Opsets& opsets) {
  std::set<std::string_view> made;
  const auto fail = [&](const std::string& what) {
    throw Error(Status::artifacts, model.path + ": " + what + "; export the folder again");
  };
  const auto make = [&](const std::string& who, const std::string& name) {
    if (!made.insert(name).second) fail(who + ": value " + quoted(name) + " is produced twice");
  };
  for (const ValueInfo& input : model.inputs) make("inputs", input.name);
  for (const Constant& constant : model.constants) make("constants", constant.name);
  for (size_t i = 0; i < model.nodes.size(); i++) {
    const Node& node = model.nodes[i];
    if (opsets.count(node.domain) == 0) fail(labels[i] + ": domain " + quoted(node.domain) + " has no opset");
    for (const std::string& name : node.inputs) {
      if (!name.empty() && made.count(name) == 0) {
        fail(labels[i] + ": input " + quoted(name) + " is not produced before it is used");
      }
    }
    for (const std::string& name : node.outputs) {
      if (!name.empty()) make(labels[i], name);
    }
  }
  std::set<std::string_view> given;
  for (const ValueInfo& output : model.outputs) {
    if (made.count(output.name) == 0) fail("output " + quoted(output.name) + " is not produced");
    if (!given.insert(output.name).second) fail("output " + quoted(output.name) + " appears twice");
  }
}

}  // namespace

Model parse_model(const std::string& path, const void* data, size_t size) {
  if (size > kMaxFileBytes) {
    throw Error(Status::artifacts, path + ": " + std::to_string(size) + " bytes, at most " +
                                       std::to_string(kMaxFileBytes) + " accepted; graphs of ours hold no weights");
  }
  Fields fields(path, "model", std::string_view(static_cast<const char*>(data), size));
  Model model;
  model.path = path;
  Opsets opsets;
  std::vector<std::string> labels;
  bool has_graph = false;
  while (fields.next()) {
    switch (fields.number()) {
      case 1:
        fields.once();
        model.ir_version = fields.integer();
        break;
      case 7:
        fields.once();
        has_graph = true;
        read_graph(path, fields.bytes(), &model, &labels);
        break;
      case 8:
        read_opset(path, fields.bytes(), &opsets);
        break;
      case 2:   // producer_name
      case 3:   // producer_version
      case 4:   // domain
      case 5:   // model_version
      case 6:   // doc_string
      case 14:  // metadata_props
        break;
      default:  // training_info, functions
        fields.unknown();
    }
  }
  if (model.ir_version < kOldestIr || model.ir_version > kNewestIr) {
    fields.fail("IR version " + std::to_string(model.ir_version) + ", expected " + std::to_string(kOldestIr) + " to " +
                std::to_string(kNewestIr));
  }
  if (!has_graph) fields.fail("no graph");
  check_flow(model, labels, opsets);
  return model;
}

Model read_model(const std::string& path) {
  const std::string content = read_file(path, kMaxFileBytes, Status::artifacts);
  return parse_model(path, content.data(), content.size());
}

}  // namespace phonograd::onnx
