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

std::string quote_name(const std::string& name) {
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
    value_field = field;
  };
  // Not tensors, graphs, lists of floats and strings, types, references to a function's attributes. Skipped:
  // doc_string.
  fields.read({{1, [&] { attribute.name = fields.text(); }},
               {2, [&] { value_of(2), attribute.real = fields.real(); }},
               {3, [&] { value_of(3), attribute.integer = fields.integer(); }},
               {4, [&] { value_of(4), attribute.text = fields.text(); }},
               {20, [&] { type = fields.integer(); }}},
              {{8, [&] { value_of(8), fields.integers(&attribute.integers); }}}, {13});
  Fields named(path, what + ": attribute " + quote_name(attribute.name), {});
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
  if (!op.empty()) label += ", " + (quote_name(op) == '"' + op + '"' ? op : quote_name(op));
  return name.empty() ? label : label + " " + quote_name(name);
}

Node read_node(const std::string& path, const std::string& label, std::string_view message) {
  Fields fields(path, label, message);
  Node node;
  const auto add_attribute = [&] {
    Attribute attribute = read_attribute(path, label, fields.bytes());
    for (const Attribute& other : node.attributes) {
      if (other.name == attribute.name) fields.fail("attribute " + quote_name(attribute.name) + " appears twice");
    }
    node.attributes.push_back(std::move(attribute));
    if (node.attributes.size() > kMaxAttributes) fields.fail("more than 64 attributes");
  };
  // Not an overload, which only functions have. Skipped: doc_string, metadata_props.
  fields.read({{3, [&] { node.name = fields.text(); }},
               {4, [&] { node.op = fields.text(); }},
               {7, [&] { node.domain = domain_of(fields.bytes()); }}},
              {{1, [&] { node.inputs.push_back(fields.text()); }},
               {2, [&] { node.outputs.push_back(fields.text()); }},
               {5, add_attribute}},
              {6, 9});
  if (node.op.empty()) fields.fail("no operator");
  return node;
}

void read_graph(const std::string& path, std::string_view message, Model* model, std::vector<std::string>* labels) {
  Fields fields(path, "graph", message);
  const auto place = [&](const char* kind, size_t count) {
    if (count >= kMaxCount) fields.fail("more than 65536 nodes or values");
    return kind + std::to_string(count);
  };
  const auto add_node = [&] {
    place("node ", labels->size());
    labels->push_back(label_of(path, labels->size(), fields.bytes()));
    model->nodes.push_back(read_node(path, labels->back(), fields.bytes()));
  };
  const auto add = [&](const char* kind, auto& values, const auto& read) {
    values.push_back(read(path, place(kind, values.size()), fields.bytes()));
  };
  // Not quantization and sparse constants. Skipped: name, doc_string, metadata_props, and value_info (13), since shapes
  // are inferred here, not believed.
  fields.read({},
              {{1, add_node},
               {5, [&] { add("constant ", model->constants, read_constant); }},
               {11, [&] { add("input ", model->inputs, read_value_info); }},
               {12, [&] { add("output ", model->outputs, read_value_info); }}},
              {2, 10, 13, 16});
}

using Opsets = std::map<std::string, int64_t>;

void read_opset(const std::string& path, std::string_view message, Opsets* opsets) {
  Fields fields(path, "opset", message);
  std::string domain;
  int64_t version = 0;
  fields.read({{1, [&] { domain = domain_of(fields.bytes()); }}, {2, [&] { version = fields.integer(); }}});
  if (domain.empty() && (version < kOldestOpset || version > kNewestOpset)) {
    fields.fail("version " + std::to_string(version) + " of the standard operators, expected " +
                std::to_string(kOldestOpset) + " to " + std::to_string(kNewestOpset));
  }
  if (domain == "com.microsoft" && version != 1) {
    fields.fail("version " + std::to_string(version) + " of com.microsoft, expected 1");
  }
  if (!opsets->emplace(domain, version).second) fields.fail("domain " + quote_name(domain) + " appears twice");
}

// Every value has one maker and is made before it is used (an input with a constant as its default has two); every
// node's operator is of an announced domain.
void check_flow(const Model& model, const std::vector<std::string>& labels, const Opsets& opsets) {
  std::set<std::string_view> made;
  const auto fail = [&](const std::string& what) {
    throw Error(Status::artifacts, model.path + ": " + what + "; export the folder again");
  };
  const auto make = [&](const std::string& who, const std::string& name) {
    if (!made.insert(name).second) fail(who + ": value " + quote_name(name) + " is produced twice");
  };
  for (const ValueInfo& input : model.inputs) make("inputs", input.name);
  for (const Constant& constant : model.constants) make("constants", constant.name);
  for (size_t i = 0; i < model.nodes.size(); i++) {
    const Node& node = model.nodes[i];
    if (opsets.count(node.domain) == 0) fail(labels[i] + ": domain " + quote_name(node.domain) + " has no opset");
    for (const std::string& name : node.inputs) {
      if (!name.empty() && made.count(name) == 0) {
        fail(labels[i] + ": input " + quote_name(name) + " is not produced before it is used");
      }
    }
    for (const std::string& name : node.outputs) {
      if (!name.empty()) make(labels[i], name);
    }
  }
  std::set<std::string_view> given;
  for (const ValueInfo& output : model.outputs) {
    if (made.count(output.name) == 0) fail("output " + quote_name(output.name) + " is not produced");
    if (!given.insert(output.name).second) fail("output " + quote_name(output.name) + " appears twice");
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
  const auto read_its_graph = [&] {
    has_graph = true;
    read_graph(path, fields.bytes(), &model, &labels);
  };
  // Not training_info and functions. Skipped: who made it, doc_string, metadata_props.
  fields.read({{1, [&] { model.ir_version = fields.integer(); }}, {7, read_its_graph}},
              {{8, [&] { read_opset(path, fields.bytes(), &opsets); }}}, {2, 3, 4, 5, 6, 14});
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
