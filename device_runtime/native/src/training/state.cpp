#include "training/state.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/files.h"
#include "base/places.h"
#include "base/sleep.h"
#include "formats/json.h"
#include "formats/sha256.h"

namespace phonograd {
namespace {

constexpr double kLockPause = 0.05;  // seconds
constexpr int kLockTries = 60;
constexpr const char* kEmbedding = "embedding.weight";

[[noreturn]] void refuse(const std::string& path, const std::string& what, Status status = Status::storage) {
  throw Error(status, path + ": " + what + "; free space or choose another place");
}

// Lock a folder; returns 0 or errno. A process that was killed while it synced a file holds its lock until the disk is
// done. Its successor may start sooner, so this waits.
int lock_folder(int descriptor) {
  for (int waited = 0;; ++waited) {
    if (flock(descriptor, LOCK_EX | LOCK_NB) == 0) return 0;
    if (errno != EINTR && (errno != EWOULDBLOCK || waited == kLockTries)) return errno;
    sleep_for(kLockPause);
  }
}

void update(Sha256& digest, uint32_t word) {
  const unsigned char bytes[4] = {static_cast<unsigned char>(word), static_cast<unsigned char>(word >> 8),
                                  static_cast<unsigned char>(word >> 16), static_cast<unsigned char>(word >> 24)};
  digest.update(bytes, sizeof bytes);
}

// The same bytes as a token file's (FORMAT.md, "Token files").
std::string stream_sha256(const std::vector<int64_t>& stream) {
  Sha256 digest;
  for (const int64_t id : stream) update(digest, static_cast<uint32_t>(id));
  return digest.hex();
}

std::string candidates_sha256(const OutputSample& sample) {
  Sha256 digest;
  for (const int64_t id : sample.candidates) update(digest, static_cast<uint32_t>(id));
  for (const float shift : sample.shifts) {
    uint32_t bits = 0;
    std::memcpy(&bits, &shift, sizeof bits);
    update(digest, bits);
  }
  return digest.hex();
}

}  // namespace

StateFolder::StateFolder(const std::string& path) : path_(path) {
  make_folder_of(path);
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) refuse(path, "cannot make the folder: " + reason_of(errno));
  if (access(path.c_str(), R_OK | W_OK | X_OK) != 0) refuse(path, "cannot be written: " + reason_of(errno));
  descriptor_ = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor_ < 0)
    refuse(path, "cannot be opened as a folder: " + reason_of(errno), status_of(errno, Status::storage));
  const int reason = lock_folder(descriptor_);
  if (reason != 0) {
    close(descriptor_);
    if (reason != EWOULDBLOCK) refuse(path, "cannot be locked: " + reason_of(reason));
    throw Error(Status::state,
                path + ": another process is training with this state; wait until it ends, or choose another folder");
  }
  remove_partials(file());  // of a save that was killed; under the lock no other is under way
}

StateFolder::~StateFolder() {
  close(descriptor_);
}

bool StateFolder::holds_state() const {
  return access(file().c_str(), F_OK) == 0;
}

std::optional<uint64_t> StateFolder::saved_number(const std::string& name) const {
  if (!holds_state()) return std::nullopt;
  try {
    const TensorFile state(file(), Status::state);
    const auto entry = state.metadata().find(name);
    if (entry == state.metadata().end()) return std::nullopt;
    return std::stoull(entry->second);
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

void StateFolder::discard() {
  if (unlink(file().c_str()) != 0 && errno != ENOENT) refuse(file(), "cannot be removed: " + reason_of(errno));
  if (fsync(descriptor_) != 0) refuse(path_, "cannot be synced: " + reason_of(errno));
}

std::string base_sha256(const Engine& engine) {
  const Manifest& manifest = engine.manifest();
  const TensorFile& base = engine.weights();
  const std::string found = base.sha256();
  engine.require_weights_unchanged();
  const bool own = base.path() == manifest.path("weights.safetensors");
  if (own && found != manifest.weights_sha256) {
    throw Error(Status::artifacts, base.path() + ": SHA-256 " + manifest.weights_sha256.substr(0, 12) +
                                       "... expected, found " + found.substr(0, 12) +
                                       "...; the file was altered, export or copy the folder again");
  }
  return found;
}

TrainingState::TrainingState(StateFolder& folder, Engine& engine, const EngineOptions& options,
                             const std::string& base_sha256, const std::vector<int64_t>& stream, double learning_rate,
                             SampleDraw draw)
    : folder_(folder), engine_(engine) {
  const Manifest& manifest = engine.manifest();
  const OutputSample& sample = engine.output_sample();
  const char* model = sample.candidates.empty() ? "training_model.onnx" : "training_model_sampled.onnx";
  // The graphs' hashes stand for all that they compute: loss, clipping, dropout, window. Threads are not in it: they do
  // not change the result.
  job_ = {
      {"base_sha256", base_sha256},
      {"stream_sha256", stream_sha256(stream)},
      {"training_model_sha256", sha256_of_file(manifest.path(model), Status::artifacts)},
      {"optimizer_model_sha256", sha256_of_file(manifest.path("optimizer_model.onnx"), Status::artifacts)},
      {"learning_rate", json::number(learning_rate)},
      {"seed", std::to_string(options.seed)},
      {"precision", name_of(options.precision)},
      {"kernels", engine.kernels_name()},
      {"steps", engine.full_batch() ? "1" : ""},
  };
  if (sample.candidates.empty()) return;
  job_.emplace_back("output_sample", std::to_string(draw.drawn));
  job_.emplace_back("sample_seed", std::to_string(draw.seed));
  job_.emplace_back("candidates_sha256", candidates_sha256(sample));
}

StateTensors TrainingState::tensors() {
  // Tied weights are changed as a whole by the output layer's gradient.
  return {engine_.parameters(), engine_.training_states(), engine_.manifest().tied ? "" : kEmbedding};
}

Progress TrainingState::resume() {
  if (!folder_.holds_state()) return {};
  Progress progress = read_state_file(folder_.file(), job_, tensors());
  engine_.set_steps_taken(progress.dropout_steps);
  return progress;
}

size_t TrainingState::save(Progress progress) {
  progress.dropout_steps = engine_.steps_taken();
  return write_state_file(folder_.file(), job_, progress, tensors(), engine_.weights(),
                          [this] { engine_.require_weights_unchanged(); });
}

}  // namespace phonograd
