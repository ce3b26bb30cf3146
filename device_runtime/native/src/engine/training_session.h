// Training of a loaded model, window by window: the full output layer or an output sample, in steps or as one batch.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/loaded_model.h"
#include "engine/program.h"

namespace phonograd {

// Trains `model`, which must outlive it, until it is destroyed. Not thread-safe; only the constructor allocates.
class TrainingSession {
 public:
  // Reads the training graph and plans it. Throws Error: artifacts, unsupported.
  explicit TrainingSession(LoadedModel& model);

  void reset();
  float step(const int64_t* token_ids, const int64_t* target_ids, float learning_rate);
  // Copy the candidates' rows that a step or a state changed into the parameters' `data`.
  void scatter();
  // Scatter for the last time, and give back the memory of the candidates' rows.
  void end();

  uint64_t steps_taken() const { return steps_; }
  void set_steps_taken(uint64_t steps);
  std::vector<RecurrentState>& states() { return recurrent_; }
  const Program& program() const { return *program_; }

 private:
  std::unique_ptr<Graph> graph(BoundParameters& bound, BoundParameters& moved);
  void pack(onnx::Model& graph, BoundParameters& bound, BoundParameters& moved);
  void bind_sample();
  void find_teacher_tables();
  void set_window(const int64_t* token_ids, const int64_t* target_ids);

  LoadedModel& model_;
  std::unique_ptr<Program> program_;
  std::vector<const TensorSpec*> teacher_tables_;  // of which a step reads some rows
  std::vector<CarriedState> states_;
  std::vector<RecurrentState> recurrent_;
  Tensor *tokens_, *targets_, *loss_;  // [T,B], [T,B], []
  uint64_t steps_ = 0;
  bool moved_ = false;  // candidates' rows have moved since they were last copied
};

}  // namespace phonograd
