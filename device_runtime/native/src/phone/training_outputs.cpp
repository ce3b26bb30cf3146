#include "phone/training_outputs.h"

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>

#include "base/error.h"
#include "base/files.h"
#include "base/finite.h"
#include "formats/sha256.h"
#include "update/update_file.h"

namespace phonograd::phone {
namespace {

void check_finite(const std::vector<TensorOut>& tensors) {
  for (const TensorOut& tensor : tensors) {
    size_t count = 1;
    for (const int64_t size : tensor.shape) count *= static_cast<size_t>(size);
    const size_t width = tensor.shape.empty() ? 1 : static_cast<size_t>(tensor.shape.back());
    const size_t at = first_not_finite(static_cast<const float*>(tensor.data), count, tensor.rows, width);
    if (at == count) continue;
    throw Error(Status::training, "trained weights: tensor " + tensor.name + ": element " + std::to_string(at) +
                                      " is not finite; lower the learning rate or export with a smaller `clip_norm`");
  }
}

// The fields that describe a written file.
JsonLine file_fields(const std::string& path, size_t bytes) {
  JsonLine line;
  line.text("path", path).integer("nbytes", static_cast<int64_t>(bytes));
  line.text("sha256", sha256_of_file(path, Status::storage));
  return line;
}

std::vector<TensorOut> trained_tensors(const Engine& engine) {
  std::vector<TensorOut> trained;
  for (const Parameter& parameter : engine.parameters()) {
    trained.push_back({parameter.name, "F32", parameter.shape, parameter.data,
                       parameter.shape.size() == 2 ? parameter.changed_rows : nullptr});
  }
  return trained;
}

}  // namespace

void require_writable(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const auto refuse = [&](const std::string& reason) {
    throw Error(Status::storage, path + ": cannot write: " + reason + "; choose another place");
  };
  struct stat about{};
  if (stat(folder.c_str(), &about) != 0 || !S_ISDIR(about.st_mode)) refuse("no folder " + folder);
  if (stat(path.c_str(), &about) == 0 && S_ISDIR(about.st_mode)) refuse("it is a folder");
  if (access(folder.c_str(), W_OK | X_OK) != 0) refuse("no permission in " + folder);
}

TrainingOutputs training_outputs(const Arguments& arguments) {
  TrainingOutputs outputs;
  outputs.weights = arguments.text("--out");
  outputs.update = arguments.text("--update");
  outputs.codec = arguments.choice("--codec", kRowsF32.name, codec_names());
  outputs.round = static_cast<uint64_t>(arguments.integer("--round", 1, 1, kMaxCount));
  outputs.codec_costs = arguments.has("--codec-costs");
  for (const std::string& path : {outputs.weights, outputs.update}) {
    if (!path.empty()) require_writable(path);
  }
  return outputs;
}

void write_outputs(const TrainingOutputs& outputs, const Engine& engine, const std::string& sha256, int64_t tokens,
                   uint64_t seed, JsonLine& report) {
  if (outputs.weights.empty() && outputs.update.empty()) return;
  const std::vector<TensorOut> trained = trained_tensors(engine);
  check_finite(trained);
  engine.require_weights_unchanged();
  if (!outputs.weights.empty()) {
    const auto check = [&engine] { engine.require_weights_unchanged(); };
    report.object("weights", file_fields(outputs.weights, write_tensor_file(outputs.weights, trained, {}, check)));
  }
  const UpdateInfo info{sha256, outputs.round, static_cast<uint64_t>(tokens), outputs.codec, seed};
  if (!outputs.update.empty()) {
    const size_t bytes = write_update(outputs.update, engine.weights(), trained, info);
    report.object("update", file_fields(outputs.update, bytes).text("codec", outputs.codec));
  }
}

std::vector<JsonLine> codec_costs(const Engine& engine, const std::string& sha256, int64_t tokens, uint64_t seed) {
  const std::vector<TensorOut> trained = trained_tensors(engine);
  std::vector<JsonLine> costs;
  for (const std::string& name : codec_names()) {
    const auto began = std::chrono::steady_clock::now();
    const size_t bytes =
        update_bytes(engine.weights(), trained, {sha256, 1, static_cast<uint64_t>(tokens), name, seed});
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    JsonLine cost;
    cost.text("codec", name).integer("nbytes", static_cast<int64_t>(bytes)).number("seconds", seconds);
    costs.push_back(cost);
  }
  return costs;
}

}  // namespace phonograd::phone
