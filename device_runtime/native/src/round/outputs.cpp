#include "round/outputs.h"

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <memory>

#include "base/error.h"
#include "base/files.h"
#include "base/finite.h"
#include "formats/sha256.h"

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
                                      " is not finite; lower the learning rate or export with a smaller `clip_norm`");
  }
}

// Hashes what it writes.
class HashedFile final : public OutputFile {
 public:
  explicit HashedFile(OutputFile& file) : file_(file) {}
  void write(const void* data, size_t bytes) override {
    digest_.update(data, bytes);
    bytes_ += bytes;
    file_.write(data, bytes);
  }
  void commit() override { file_.commit(); }
  // What was written; once.
  Written written() { return {bytes_, digest_.hex()}; }

 private:
  OutputFile& file_;
  Sha256 digest_;
  size_t bytes_ = 0;
};

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

Written write_update_of(const Engine& engine, const std::vector<TensorOut>& trained, const UpdateInfo& info,
                        OutputFile& file) {
  HashedFile hashed(file);
  write_update(hashed, engine.weights(), trained, info);
  return hashed.written();
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

bool needs_identity(const RoundSettings& settings) {
  return !settings.state.empty() || !settings.update.empty() || settings.update_descriptor >= 0 || settings.codec_costs;
}

void check_base_kept(const RoundSettings& settings, const std::string& base) {
  struct stat about{}, other{};
  if (stat(base.c_str(), &about) != 0) return;
  const auto check = [&](const std::string& name) {
    if (about.st_dev != other.st_dev || about.st_ino != other.st_ino) return;
    throw Error(Status::usage, name + ": training starts from these weights; write to another file");
  };
  // Written in place, a descriptor's file would change while it is in use.
  if (settings.update_descriptor >= 0 && fstat(settings.update_descriptor, &other) == 0) check("`update_descriptor`");
  if (settings.state.empty()) return;
  for (const std::string& path : {settings.out, settings.update}) {
    if (!path.empty() && stat(path.c_str(), &other) == 0) check(path);
  }
}

void write_outputs(const RoundSettings& settings, const Engine& engine, const std::string& sha256, int64_t tokens,
                   uint64_t seed, JsonLine& report) {
  const bool to_descriptor = settings.update_descriptor >= 0;
  const bool update = to_descriptor || !settings.update.empty();
  if (settings.out.empty() && !update) return;
  const std::vector<TensorOut> trained = finite_tensors(engine);
  if (!settings.out.empty()) {
    AtomicFile file(settings.out);
    HashedFile hashed(file);
    write_tensor_file(hashed, trained, {}, [&engine] { engine.require_weights_unchanged(); });
    report.object("weights", fields(hashed.written(), settings.out));
  }
  if (!update) return;
  const UpdateInfo info{sha256,         settings.round, static_cast<uint64_t>(tokens),
                        settings.codec, seed,           settings.steps == 1};
  const std::unique_ptr<OutputFile> file =
      to_descriptor ? std::unique_ptr<OutputFile>(std::make_unique<DescriptorFile>(settings.update_descriptor))
                    : std::make_unique<AtomicFile>(settings.update);
  const Written written = write_update_of(engine, trained, info, *file);
  report.object("update", fields(written, settings.update).text("codec", settings.codec));
}

Written write_trained_update(const Engine& engine, const UpdateInfo& info, OutputFile& file) {
  return write_update_of(engine, finite_tensors(engine), info, file);
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
