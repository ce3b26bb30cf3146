// The file of a training state: a tensor file with what an epoch has changed so far, and what job it belongs to.
// FORMAT.md, "Training state". Engines and folders are in state.h.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "formats/tensor_file.h"

namespace phonograd {

// (name, value) of the file's metadata that must match for a state to be resumed.
using Job = std::vector<std::pair<std::string, std::string>>;

// The progress of an epoch.
struct Progress {
  std::vector<double> losses;        // nats a token, one of each step done
  std::vector<double> step_seconds;  // likewise
  uint64_t dropout_steps = 0;        // Engine::steps_taken()
};

// The engine's memory that a state saves and restores. `rows_of`: the parameter of which only the rows that differ from
// `base` are stored (the input embedding: one epoch touches the rows of its words), or "". So are those of packed
// parameters.
struct StateTensors {
  const std::vector<Parameter>& parameters;
  const std::vector<RecurrentState>& recurrent;
  std::string rows_of;
};

// Write a state atomically and durably, straight from the engine's memory, readable only by its owner because it
// reveals the text. `base` holds the weights that training started from; `check` is called after the last write and
// before the rename. Returns the size in bytes. Throws Error(storage) and what `check` throws; then an old file is
// unchanged.
size_t write_state_file(const std::string& path, const Job& job, const Progress& progress, const StateTensors& tensors,
                        const TensorFile& base, const std::function<void()>& check);

// Read a state into the engine's memory, which must hold the base's values. Throws Error(state), before it changes that
// memory, if the file is damaged (checksum mismatch), of another version, or of another job.
Progress read_state_file(const std::string& path, const Job& job, const StateTensors& tensors);

}  // namespace phonograd
