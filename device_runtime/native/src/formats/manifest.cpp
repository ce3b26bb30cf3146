#include "formats/manifest.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <initializer_list>
#include <iterator>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "formats/json.h"
#include "formats/tensor_file.h"

namespace phonograd {
namespace {

// Ours are about 4 KB.
constexpr size_t kMaxFileBytes = 1 << 20;
// So that 8 times the product of two sizes, the largest number of elements a layer can ask for, is far from overflow.
constexpr int64_t kMaxSize = int64_t{1} << 28;
constexpr const char* kWeights = "weights.safetensors";
// Arrays, not vectors: these would allocate when the library is loaded, where a lack of memory ends the process.
constexpr const char* kFiles[] = {"training_model.onnx",
                                  "training_model_sampled.onnx",
                                  "eval_model.onnx",
                                  "optimizer_model.onnx",
                                  "checkpoint",
                                  kWeights,
                                  "vocab.txt"};
constexpr const char* kOptionalFiles[] = {kPredictionFile, "training_model_distill.onnx"};

// One JSON object of the manifest, held to its fields. All methods but the constructor take a field's name.
class Section {
 public:
  Section(const std::string& path, std::string what, const json::Value& value, const std::vector<const char*>& fields)
      : path_(path), what_(std::move(what)), value_(value) {
    const auto* object = value.as<json::Object>();
    if (object == nullptr) fail(what_ + " is " + value.text() + ", expected an object");
    for (const char* field : fields) {
      if (value.find(field) == nullptr)
        fail(what_ + ": field " + field + " is missing; export again with this version");
    }
    for (const json::Member& member : *object) {
      if (std::find(fields.begin(), fields.end(), member.key) == fields.end()) {
        fail(what_ + ": field " + json::quote(member.key.substr(0, 80)) +
             " is unknown; export again with this version");
      }
    }
  }

  const json::Value& at(const char* field) const { return *value_.find(field); }

  int64_t size(const char* field, int64_t least = 1) const {
    const auto* size = at(field).as<int64_t>();
    if (size == nullptr || *size < least || *size > kMaxSize) {
      wrong(field, "a whole number from " + std::to_string(least) + " to 2^28");
    }
    return *size;
  }

  bool boolean(const char* field) const {
    const auto* boolean = at(field).as<bool>();
    if (boolean == nullptr) wrong(field, "true or false");
    return *boolean;
  }

  double number(const char* field, const char* expected, bool (*good)(double)) const {
    double number = 0;
    if (!at(field).number(&number) || !good(number)) wrong(field, expected);
    return number;
  }

  std::string text(const char* field) const {
    const auto* text = at(field).as<std::string>();
    if (text == nullptr || text->empty()) wrong(field, "a text");
    return *text;
  }

  std::string one_of(const char* field, std::initializer_list<const char*> choices) const {
    const auto* text = at(field).as<std::string>();
    std::string expected = "one of";
    for (const char* choice : choices) {
      if (text != nullptr && *text == choice) return *text;
      expected += std::string(expected == "one of" ? " " : ", ") + choice;
    }
    wrong(field, expected);
  }

  std::string sha256(const char* field) const {
    const auto* text = at(field).as<std::string>();
    if (text == nullptr || text->size() != 64 || text->find_first_not_of("0123456789abcdef") != std::string::npos) {
      wrong(field, "a SHA-256 of 64 hexadecimal digits");
    }
    return *text;
  }

  std::vector<int64_t> shape(const char* field) const {
    const auto* list = at(field).as<json::Array>();
    const char* expected = "a list of up to 8 sizes, of less than 2^60 elements";
    if (list == nullptr || list->size() > kMaxDimensions) wrong(field, expected);
    std::vector<int64_t> shape;
    int64_t elements = 1;
    for (const json::Value& element : *list) {
      const auto* size = element.as<int64_t>();
      if (size == nullptr || *size < 1 || __builtin_mul_overflow(elements, *size, &elements) ||
          elements >= int64_t{1} << 60) {
        wrong(field, expected);
      }
      shape.push_back(*size);
    }
    return shape;
  }

  const json::Array& list(const char* field) const {
    const auto* list = at(field).as<json::Array>();
    if (list == nullptr) wrong(field, "a list");
    return *list;
  }

  [[noreturn]] void wrong(const char* field, const std::string& expected) const {
    fail(what_ + ": " + field + " is " + at(field).text() + ", expected " + expected);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw Error(Status::artifacts, path_ + ": " + what); }

  const std::string& path_;
  std::string what_;
  const json::Value& value_;
};

void read_model(const std::string& path, const json::Value& value, Manifest* manifest) {
  const Section model(path, "model", value,
                      {"cell", "vocabulary", "embedding", "hidden", "layers", "tied", "output_bias", "adapters"});
  manifest->cell = model.one_of("cell", {"lstm", "gru", "cifg"});
  manifest->vocabulary = model.size("vocabulary");
  manifest->embedding = model.size("embedding");
  manifest->hidden = model.size("hidden");
  manifest->layers = model.size("layers");
  manifest->tied = model.boolean("tied");
  manifest->output_bias = model.boolean("output_bias");
  manifest->adapters = model.size("adapters", 0);
}

void read_training(const std::string& path, const json::Value& value, Manifest* manifest) {
  const Section training(
      path, "training", value,
      {"minibatch", "bptt", "learning_rate", "clip_norm", "loss", "loss_reduction", "user_share", "dropout"});
  const auto positive = [](double x) { return x > 0; };
  manifest->minibatch = training.size("minibatch");
  manifest->bptt = training.size("bptt");
  manifest->learning_rate = training.number("learning_rate", "a number more than 0", positive);
  manifest->clipped = training.at("clip_norm").as<std::nullptr_t>() == nullptr;
  if (manifest->clipped) manifest->clip_norm = training.number("clip_norm", "null or a number more than 0", positive);
  manifest->loss = training.one_of("loss", {"ce", "lwf"});
  manifest->loss_reduction = training.one_of("loss_reduction", {"sum_over_time", "mean"});
  manifest->user_share = training.number("user_share", "a number in (0, 1]", [](double x) { return x > 0 && x <= 1; });
  manifest->dropout = training.number("dropout", "a number in [0, 1)", [](double x) { return x >= 0 && x < 1; });
}

void read_states(const std::string& path, const Section& top, Manifest* manifest) {
  for (const json::Value& value : top.list("states")) {
    const Section state(path, "states", value, {"input", "output", "shape"});
    manifest->states.push_back({state.text("input"), state.text("output"), state.shape("shape")});
    const ManifestState& found = manifest->states.back();
    std::vector<int64_t> expected = {1, manifest->minibatch, manifest->hidden};
    const bool of_teacher = found.input.rfind(kTeacherPrefix, 0) == 0;  // perhaps another model, of its own size
    if (of_teacher && found.shape.size() == expected.size()) expected.back() = found.shape.back();
    if (found.shape != expected) state.wrong("shape", "[1, minibatch, hidden]");
  }
}

void read_tensors(const std::string& path, const Section& top, Manifest* manifest) {
  std::set<std::string> names;
  for (const json::Value& value : top.list("tensors")) {
    const Section tensor(path, "tensors", value, {"name", "shape", "dtype", "sha256"});
    manifest->tensors.push_back({tensor.text("name"), tensor.shape("shape")});
    if (!names.insert(manifest->tensors.back().name).second) tensor.wrong("name", "each name once");
    tensor.one_of("dtype", {"F32"});
    tensor.sha256("sha256");
  }
}

void check_text_rules(const std::string& path, const Section& top) {
  constexpr int64_t kTextRules = 1;
  const Section text(path, "text", top.at("text"), {"rules", "unicode"});
  const auto* rules = text.at("rules").as<int64_t>();
  if (rules == nullptr || *rules != kTextRules) text.wrong("rules", std::to_string(kTextRules));
  const auto* unicode = text.at("unicode").as<std::string>();
  if (unicode == nullptr || *unicode != kUnicodeVersion) text.wrong("unicode", json::quote(kUnicodeVersion));
}

void check_files(const std::string& path, const Section& top, Manifest* manifest) {
  const json::Value& value = top.at("files");
  manifest->predicts = value.find(kPredictionFile) != nullptr;
  std::vector<const char*> names(std::begin(kFiles), std::end(kFiles));
  for (const char* name : kOptionalFiles) {
    if (value.find(name) != nullptr) names.push_back(name);
  }
  const Section files(path, "files", value, names);
  for (const json::Member& member : *value.as<json::Object>()) {
    const Section entry(path, "files." + member.key, member.value, {"bytes", "sha256"});
    const auto* bytes = entry.at("bytes").as<int64_t>();
    if (bytes == nullptr || *bytes < 0) entry.wrong("bytes", "a whole number of at least 0");
    const std::string sha256 = entry.sha256("sha256");
    if (member.key == kWeights) manifest->weights_sha256 = sha256;
    const std::string file = manifest->path(member.key);
    manifest->files.push_back(file);
    struct stat about{};
    if (stat(file.c_str(), &about) != 0 || !S_ISREG(about.st_mode)) {
      throw Error(Status::artifacts, file + ": named in manifest.json, not found; export the folder again");
    }
    if (about.st_size != *bytes) {
      throw Error(Status::artifacts, file + ": " + std::to_string(*bytes) + " bytes expected, found " +
                                         std::to_string(about.st_size) + "; export or copy the folder again");
    }
  }
}

std::string read_text(const std::string& folder, const std::string& path) {
  struct stat about{};
  if (stat(path.c_str(), &about) != 0 && (errno == ENOENT || errno == ENOTDIR)) {
    const bool exists = stat(folder.c_str(), &about) == 0;
    const bool is_folder = exists && S_ISDIR(about.st_mode);
    if (exists && !is_folder) {
      throw Error(Status::artifacts, folder +
                                         ": an artifacts folder expected, found a file; give the folder that phonograd "
                                         "export wrote");
    }
    throw Error(Status::artifacts,
                path + ": not found (" +
                    (is_folder ? "an export that did not finish, or another folder" : "no such folder") +
                    "); write one with: phonograd export");
  }
  return read_file(path, kMaxFileBytes, Status::artifacts);
}

}  // namespace

Manifest read_manifest(const std::string& folder) {
  Manifest manifest;
  manifest.folder = folder.empty() ? "." : folder;
  const std::string path = manifest.path("manifest.json");
  const json::Value document = json::parse(read_text(manifest.folder, path), Status::artifacts, path + ": manifest");
  const json::Value* version = document.find("schema_version");
  const int64_t* number = version == nullptr ? nullptr : version->as<int64_t>();
  if (number == nullptr || *number != 3) {
    throw Error(Status::artifacts, path + ": schema_version 3 expected, found " +
                                       (version == nullptr ? "none" : version->text()) +
                                       "; export again with this version");
  }
  const Section top(path, "manifest", document,
                    {"model", "training", "states", "tensors", "files", "tools", "text", "schema_version"});
  read_model(path, top.at("model"), &manifest);
  read_training(path, top.at("training"), &manifest);
  read_states(path, top, &manifest);
  read_tensors(path, top, &manifest);
  if (top.at("tools").as<json::Object>() == nullptr) top.wrong("tools", "an object");
  check_text_rules(path, top);
  check_files(path, top, &manifest);
  manifest.files.push_back(path);
  return manifest;
}

}  // namespace phonograd
