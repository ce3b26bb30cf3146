// Resumable training: a folder holds what an epoch has changed so far, and a killed process resumes from it with the
// same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "training/state_file.h"

namespace phonograd {

// Default number of steps between saves. At full size a state is 105 MB: a phone writes and syncs it in 0.3 to 2 s, and
// trains a step in 1 to 7 s. Saving every 5 steps, or after 5 s, costs some percent of an epoch.
constexpr int64_t kSaveEvery = 5;

// The folder, locked against other processes while this exists. Not copyable.
class StateFolder {
 public:
  // Create the folder and those above it if there are none, lock it, and remove what a killed save left. Throws Error:
  // storage if it can't be created or written, state if another process is training with it.
  explicit StateFolder(const std::string& path);
  ~StateFolder();
  StateFolder(const StateFolder&) = delete;
  StateFolder& operator=(const StateFolder&) = delete;

  // The file of the state that such a folder holds.
  static std::string file_in(const std::string& folder) { return folder + "/state.safetensors"; }
  std::string file() const { return file_in(path_); }
  // A number of the job of the state that is there: none where there is no state, or one that is damaged, which is
  // refused where it is read.
  std::optional<uint64_t> saved_number(const std::string& name) const;
  bool holds_state() const;
  // Remove the state, if there is one, durably. Throws Error(storage).
  void discard();

 private:
  std::string path_;
  int descriptor_ = -1;
};

// How an output sample was drawn: the words asked for beside the stream's own, and the seed.
struct SampleDraw {
  int64_t drawn = 0;
  uint64_t seed = 0;
};

// One epoch's state: an engine, the stream it trains on, and the folder. All must outlive this.
class TrainingState {
 public:
  // `base_sha256` of the engine, `stream` and `learning_rate` are, with its graphs and options, the job that a state
  // must be of; so is `draw` of an engine with an output sample, and is not read without one. Throws Error(artifacts)
  // where the graphs can't be read.
  TrainingState(StateFolder& folder, Engine& engine, const EngineOptions& options, const std::string& base_sha256,
                const std::vector<int64_t>& stream, double learning_rate, SampleDraw draw = {});

  // Restore the saved state into the engine, which must have been reset() and not trained; no steps done if there is no
  // state. Throws Error(state) if it is damaged or of another job.
  Progress resume();
  // Save the epoch's progress durably; `dropout_steps` comes from the engine. Returns the size in bytes. Throws Error:
  // storage, or weights if the base file was changed; then the state saved before is unchanged.
  size_t save(Progress progress);

 private:
  StateTensors tensors();

  StateFolder& folder_;
  Engine& engine_;
  Job job_;
};

// The identity of the weights an engine started from: the hash of the whole file that it has open. Throws Error:
// weights if the file can't be read or was changed, artifacts if the folder's own weights do not match its manifest.
std::string base_sha256(const Engine& engine);

}  // namespace phonograd
