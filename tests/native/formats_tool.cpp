// What the C++ readers see, as JSON, one line for each path: formats_tool
// tensors|rewrite|onnx|manifest|json|quote|sha256|blocks PATH... An error is {"status": CODE, "error": MESSAGE}. For
// test_formats.py to compare with Python.
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>

#include "base/crc32.h"
#include "base/files.h"
#include "formats/json.h"
#include "formats/manifest.h"
#include "formats/onnx_reader.h"
#include "formats/sha256.h"
#include "formats/tensor_file.h"
#include "kernels/sha256.h"

namespace {

using namespace phonograd;
using json::quote;

template <class List, class Each>
std::string list_of(const List& list, Each each) {
  std::string out;
  for (const auto& element : list) out += (out.empty() ? "" : ", ") + each(element);
  return "[" + out + "]";
}

std::string shape_of(const std::vector<int64_t>& shape) {
  return list_of(shape, [](int64_t size) { return std::to_string(size); });
}

std::string tensors(const std::string& path) {
  const TensorFile file(path);
  const Mapping copy = file.map_copy_on_write();
  std::string metadata;
  for (const auto& [key, value] : file.metadata()) {
    metadata += (metadata.empty() ? "" : ", ") + quote(key) + ": " + quote(value);
  }
  const std::string specs = list_of(file.specs(), [&](const TensorSpec& spec) {
    const bool same = spec.bytes == 0 || std::memcmp(copy.data() + spec.offset, file.data(spec), spec.bytes) == 0;
    return "{\"name\": " + quote(spec.name) + ", \"dtype\": " + quote(spec.dtype) +
           ", \"shape\": " + shape_of(spec.shape) + ", \"elements\": " + std::to_string(spec.elements()) +
           ", \"sha256\": " + quote(same ? sha256_hex(file.data(spec), spec.bytes) : "two mappings differ") + "}";
  });
  return "{\"metadata\": {" + metadata + "}, \"tensors\": " + specs + "}";
}

// The same tensors written to PATH.again.
std::string rewrite(const std::string& path) {
  const TensorFile file(path);
  std::vector<TensorOut> out;
  for (const TensorSpec& spec : file.specs()) out.push_back({spec.name, spec.dtype, spec.shape, file.data(spec)});
  AtomicFile again(path + ".again");
  return std::to_string(write_tensor_file(again, out, file.metadata()));
}

std::string value_info(const onnx::ValueInfo& info) {
  const std::string shape = list_of(info.shape, [](const onnx::Dimension& dimension) {
    return dimension.size >= 0 ? std::to_string(dimension.size) : quote(dimension.name);
  });
  return "[" + quote(info.name) + ", " + std::to_string(static_cast<int>(info.type)) + ", " +
         (info.has_shape ? shape : "null") + "]";
}

std::string attribute(const onnx::Attribute& a) {
  const std::string value = a.kind == onnx::Attribute::Kind::real      ? json::number(a.real)
                            : a.kind == onnx::Attribute::Kind::integer ? std::to_string(a.integer)
                            : a.kind == onnx::Attribute::Kind::text    ? quote(a.text)
                                                                       : shape_of(a.integers);
  return "[" + quote(a.name) + ", " + value + "]";
}

std::string onnx_model(const std::string& path) {
  const onnx::Model model = onnx::read_model(path);
  const std::string nodes = list_of(model.nodes, [](const onnx::Node& node) {
    return "[" + quote(node.name) + ", " + quote(node.op) + ", " + quote(node.domain) + ", " +
           list_of(node.inputs, quote) + ", " + list_of(node.outputs, quote) + ", " +
           list_of(node.attributes, attribute) + "]";
  });
  const std::string constants = list_of(model.constants, [](const onnx::Constant& constant) {
    return "[" + quote(constant.name) + ", " + std::to_string(static_cast<int>(constant.type)) + ", " +
           shape_of(constant.shape) + ", " + quote(sha256_hex(constant.bytes.data(), constant.bytes.size())) + "]";
  });
  return "{\"ir\": " + std::to_string(model.ir_version) + ", \"inputs\": " + list_of(model.inputs, value_info) +
         ", \"outputs\": " + list_of(model.outputs, value_info) + ", \"constants\": " + constants +
         ", \"nodes\": " + nodes + "}";
}

std::string manifest(const std::string& folder) {
  const Manifest m = read_manifest(folder);
  const auto boolean = [](bool value) { return value ? "true" : "false"; };
  const std::string model = "{\"cell\": " + quote(m.cell) + ", \"vocabulary\": " + std::to_string(m.vocabulary) +
                            ", \"embedding\": " + std::to_string(m.embedding) +
                            ", \"hidden\": " + std::to_string(m.hidden) + ", \"layers\": " + std::to_string(m.layers) +
                            ", \"tied\": " + boolean(m.tied) + ", \"output_bias\": " + boolean(m.output_bias) +
                            ", \"adapters\": " + std::to_string(m.adapters) + "}";
  const std::string training =
      "{\"minibatch\": " + std::to_string(m.minibatch) + ", \"bptt\": " + std::to_string(m.bptt) +
      ", \"learning_rate\": " + json::number(m.learning_rate) +
      ", \"clip_norm\": " + (m.clipped ? json::number(m.clip_norm) : "null") + ", \"loss\": " + quote(m.loss) +
      ", \"loss_reduction\": " + quote(m.loss_reduction) + ", \"user_share\": " + json::number(m.user_share) +
      ", \"dropout\": " + json::number(m.dropout) + "}";
  const std::string states = list_of(m.states, [](const ManifestState& state) {
    return "{\"input\": " + quote(state.input) + ", \"output\": " + quote(state.output) +
           ", \"shape\": " + shape_of(state.shape) + "}";
  });
  const std::string table = list_of(m.tensors, [](const ManifestTensor& tensor) {
    return "[" + quote(tensor.name) + ", " + shape_of(tensor.shape) + "]";
  });
  return "{\"model\": " + model + ", \"training\": " + training + ", \"states\": " + states +
         ", \"tensors\": " + table + ", \"weights_sha256\": " + quote(m.weights_sha256) + "}";
}

std::string json_document(const std::string& path) {
  return json::parse(read_file(path, 1 << 20, Status::text), Status::text, path).text(1 << 22);
}

std::string quoted_file(const std::string& path) {
  return quote(read_file(path, 1 << 20, Status::text));
}

std::string sha256(const std::string& path) {
  return quote(sha256_of_file(path, Status::text));
}

// What each implementation of SHA-256 makes of a file of whole blocks, padding included.
std::string blocks(const std::string& path) {
  const std::string bytes = read_file(path, 1 << 20, Status::text);
  const auto digest = [&bytes](Sha256Blocks take) -> std::string {
    if (take == nullptr) return "null";
    uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    take(state, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size() / kSha256Block);
    char hex[65];
    for (int i = 0; i < 8; i++) std::snprintf(hex + 8 * i, 9, "%08x", state[i]);
    return quote(hex);
  };
  return "{\"portable\": " + digest(sha256_portable) + ", \"instructions\": " + digest(sha256_instructions()) + "}";
}

// CRC-32 with and without the CPU's instructions: of the whole file, and of its first byte and then the others.
std::string checksums(const std::string& path) {
  const std::string bytes = read_file(path, 1 << 20, Status::text);
  std::string line;
  for (const auto take : {crc32, crc32_portable}) {
    const size_t first = bytes.empty() ? 0 : 1;
    const uint32_t begun = take(0, bytes.data(), first);
    line += (line.empty() ? "[" : ", ") + std::to_string(take(0, bytes.data(), bytes.size())) + ", " +
            std::to_string(take(begun, bytes.data() + first, bytes.size() - first));
  }
  return line + "]";
}

}  // namespace

int main(int count, char** arguments) {
  const std::map<std::string, std::function<std::string(const std::string&)>> commands = {
      {"tensors", tensors},   {"rewrite", rewrite},    {"onnx", onnx_model},
      {"manifest", manifest}, {"json", json_document}, {"quote", quoted_file},
      {"sha256", sha256},     {"blocks", blocks},      {"checksums", checksums}};
  const auto command = count > 1 ? commands.find(arguments[1]) : commands.end();
  if (command == commands.end()) return 2;
  for (int i = 2; i < count; i++) {
    std::string line;
    try {
      line = command->second(arguments[i]);
    } catch (const Error& error) {
      line = "{\"status\": " + std::to_string(static_cast<int>(error.status())) +
             ", \"error\": " + quote(error.what()) + "}";
    }
    std::printf("%s\n", line.c_str());
  }
  return 0;
}
