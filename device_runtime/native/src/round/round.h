// A phone's part in a round: a user's text and a rehearsal text, an epoch over both that can be stopped and resumed,
// and the update for the server. The command `phonograd-phone train` and the C ABI's pg_round run this.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "formats/json_line.h"
#include "round/run_history.h"
#include "round/settings.h"
#include "text/rehearsal.h"
#include "training/state.h"
#include "training/trainer.h"

namespace phonograd {

// One caller at a time; it runs its own threads inside.
class Round {
 public:
  // Checks everything, reads and mixes the texts, and loads the model; locks the folder of states until this is
  // destroyed. Throws Error: what check_settings throws; text, vocabulary, artifacts, weights, unsupported, storage;
  // state if another process is training with that folder; what RunHistory throws.
  explicit Round(const RoundSettings& settings);
  Round(const Round&) = delete;
  Round& operator=(const Round&) = delete;

  const Engine& engine() const { return *running_.engine; }
  const EngineOptions& engine_options() const { return running_.options; }
  const TrainingText& text() const { return text_; }
  int64_t steps() const;  // of all epochs

  // Train from where the state is, then write the outputs. False if it was stopped: with a state it is saved, and a new
  // Round of the same settings resumes. Call it once. Throws what train_epoch and write_outputs throw.
  bool train(const EpochEvents& events);
  // What train() did.
  const EpochReport& epoch() const { return epoch_; }

  // The job: fields that the start of training and the report share. `steps` of all epochs.
  void describe(int64_t steps, JsonLine& line) const;
  // The report's fields, once train() has returned true.
  const JsonLine& report() const { return report_; }
  // Remove the saved state. Call it last: after a kill before this, resuming writes the same files. Throws
  // Error(storage).
  void discard_state();

 private:
  void write();

  const RoundSettings settings_;
  const Manifest manifest_;
  std::optional<RunHistory> history_;          // absent: the round is of no run
  const std::unique_ptr<StateFolder> folder_;  // nullptr: nothing is saved
  const uint64_t seed_;
  const SampleDraw draw_;
  const double learning_rate_;
  const TrainingText text_;
  const RunningEngine running_;
  const std::string identity_;  // of the weights that training starts from; "" where nothing needs it
  std::optional<TrainingState> state_;
  bool trained_ = false;
  EpochReport epoch_;
  JsonLine report_;
};

}  // namespace phonograd
