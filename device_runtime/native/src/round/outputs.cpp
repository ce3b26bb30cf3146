#include "round/outputs.h"

#include <chrono>
#include <memory>

#include "base/error.h"
#include "base/files.h"
#include "base/finite.h"
#include "base/places.h"
#include "formats/frozen.h"
#include "masked/grid.h"
#include "training/state.h"

namespace phonograd {
namespace {

void check_finite(const std::vector<TensorOut>& tensors) {
  for (const TensorOut& tensor : tensors) {
    size_t count = 1;
    for (const int64_t size : tensor.shape) count *= static_cast<size_t>(size);
    const size_t width = tensor.shape.empty() ? 1 : static_cast<size_t>(tensor.shape.back());
    const size_t at = first_not_finite(static_cast<const float*>(tensor.data), count, tensor.rows, width);
    if (at == count) continue;
    throw Error(Status::training, "trained weights: tensor " + tensor.name + ": element " + std::to_string(at) +
                                      " is not finite; lower the learning rate or export with stronger clipping");
  }
}

// The fields that describe a written file.
JsonLine fields(const Written& written, const std::string& path) {
  JsonLine line;
  if (!path.empty()) line.text("path", path);
  line.integer("nbytes", static_cast<int64_t>(written.bytes)).text("sha256", written.sha256);
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

// The trained tensors, which are finite. Throws Error: training if they are not, weights if the base file was changed.
std::vector<TensorOut> finite_tensors(const Engine& engine) {
  std::vector<TensorOut> trained = trained_tensors(engine);
  check_finite(trained);
  engine.require_weights_unchanged();
  return trained;
}

}  // namespace

void require_outputs(const RoundSettings& settings, const Manifest& manifest) {
  std::vector<std::string> inputs = {settings.user.path, settings.rehearsal.path, settings.tokens, settings.weights,
                                     settings.state};
  if (!settings.state.empty()) inputs.push_back(StateFolder::file_in(settings.state));
  inputs.insert(inputs.end(), manifest.files.begin(), manifest.files.end());
  require_outputs({settings.out, settings.update, settings.run_history}, inputs, settings.update_descriptor);
}

bool needs_identity(const RoundSettings& settings) {
  return !settings.state.empty() || writes_update(settings) || settings.codec_costs;
}

void write_outputs(const RoundSettings& settings, const Engine& engine, const std::string& sha256, int64_t tokens,
                   uint64_t seed, JsonLine& report) {
  const bool to_descriptor = settings.update_descriptor >= 0;
  const bool update = writes_update(settings);
  if (settings.out.empty() && !update) return;
  const std::vector<TensorOut> trained = finite_tensors(engine);
  if (!settings.out.empty()) {
    AtomicFile file(settings.out);
    HashedFile hashed(file);
    write_tensor_file(hashed, trained, frozen_metadata(engine.weights().metadata()),
                      [&engine] { engine.require_weights_unchanged(); });
    report.object("weights", fields(hashed.result(), settings.out));
  }
  if (!update) return;
  const std::unique_ptr<OutputFile> file =
      to_descriptor ? std::unique_ptr<OutputFile>(std::make_unique<DescriptorFile>(settings.update_descriptor))
                    : std::make_unique<AtomicFile>(settings.update);
  if (!settings.masked.empty()) {
    const Written written =
        write_grid(*file, engine.weights(), trained, {settings.masked, sha256, tokens, settings.steps == 1});
    report.object("update", fields(written, settings.update).text("codec", "masked"));
    return;
  }
  const UpdateInfo info{sha256,         settings.round, static_cast<uint64_t>(tokens),
                        settings.codec, seed,           settings.steps == 1};
  const Written written = write_update(*file, engine.weights(), trained, info);
  report.object("update", fields(written, settings.update).text("codec", settings.codec));
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

}  // namespace phonograd
