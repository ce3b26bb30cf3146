// Resumable training: a folder that holds what an epoch has changed so far, so that a process that was killed goes on
// where it was, to the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "training/state_file.h"

namespace phonograd {

// Steps from one save to the next by default. At full size a state is 105 MB: written and synced in 0.3 to 2 s on a
// phone's storage, where a step takes 1 to 7 s. Every 5 steps costs a few percent of an epoch and of wear, and a kill
// at most 5 steps, which are trained again.
constexpr int64_t kSaveEvery = 5;

// The folder, kept from other processes as long as this lives. Not copyable.
class StateFolder {
 public:
  // Make the folder where there is none, lock it, and clear what a killed save left behind. Throws Error: storage where
  // it can't be made or written, state where another process trains with it.
  explicit StateFolder(const std::string& path);
  ~StateFolder();
  StateFolder(const StateFolder&) = delete;
  StateFolder& operator=(const StateFolder&) = delete;

  std::string file() const { return path_ + "/state.safetensors"; }
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

  // Bring the engine, which was reset() and has not trained, to where the saved state is; no steps done if there is
  // none. Throws Error(state): damaged, or of another job.
  Progress resume();
  // Save durably how far the epoch is; `dropout_steps` is taken from the engine. Returns the bytes written. Throws
  // Error: storage, or weights if the file that training started from was changed; then the state saved before is as it
  // was.
  size_t save(Progress progress);

 private:
  StateTensors tensors();

  StateFolder& folder_;
  Engine& engine_;
  Job job_;
};

// The identity of the weights an engine started from: the hash of the file that it has open, all of which is read.
// Throws Error: weights if it can't be read or was changed, artifacts if the folder's own are not those of its
// manifest.
std::string base_sha256(const Engine& engine);

}  // namespace phonograd
