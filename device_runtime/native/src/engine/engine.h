// The engine's C++ interface: a language model from an artifacts folder, trained and evaluated window by window. The
// phone command uses it directly; the C ABI (include/phonograd.h), which Python calls, is a thin layer over it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/parameters.h"
#include "formats/manifest.h"
#include "text/output_sample.h"

namespace phonograd {

class EvaluationSession;
class LoadedModel;
class TensorFile;
class TrainingSession;

// Not thread-safe: one caller at a time; it runs its own threads inside. No method but the constructor and the first
// logits() of a shape allocates.
class Engine {
 public:
  // Reads manifest, graphs and weights, plans, and allocates everything a step needs. `weights` "": the folder's own;
  // else a tensor file of the same shapes, which an LwF teacher starts from too. Throws Error: artifacts, weights,
  // unsupported. `sample`: step() trains the softmax over its candidates alone; of none: over the vocabulary. Throws
  // Error(usage) for candidates that do not rise or are no ids, and for shifts that are negative or not finite.
  Engine(const std::string& folder, const std::string& weights, const EngineOptions& options,
         const OutputSample& sample = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const Manifest& manifest() const;
  const OutputSample& output_sample() const;
  // Words of the softmax that step() trains.
  int64_t output_words() const;

  bool full_batch() const;
  // The end of a full batch: clip the gradient of all windows as a step clips its own; `learning_rate` is the whole
  // step's. Throws Error(training) if it is not finite.
  void finish_full_batch(float learning_rate);

  // Set the recurrent states to zero, at the start of a new text.
  void reset();

  // Train on one window, tokens and targets [T,B] (target -1: not counted); the loss as the manifest defines it, before
  // the update. Throws Error: training for ids outside the vocabulary or the output sample, weights if their file was
  // changed; a loss that is not finite is returned as it is, and then the weights are left as they were.
  float step(const int64_t* tokens, const int64_t* targets, float learning_rate);

  // Scores [T*B, V] after tokens [T,B], without dropout; carries recurrent states of its own, zeroed by reset() and by
  // a change of B. The result is the engine's memory, valid until the next call.
  const float* logits(const int64_t* tokens, int64_t T, int64_t B);

  // The dropout masks' counter: steps since the engine was created. Saved and restored with a training state.
  uint64_t steps_taken() const;
  void set_steps_taken(uint64_t steps);

  std::vector<RecurrentState>& training_states();
  const std::vector<Parameter>& parameters() const;  // in the order of the manifest's tensor table
  // Bring every parameter's `data` to what was trained: what is packed is copied. logits() does so by itself.
  void scatter() const;
  // Scatter, then give back the memory of training. After it nothing of training may be called: step(), phase_times(),
  // plan_text(), training_states(), steps_taken().
  void end_training();
  const std::vector<PhaseTime>& phase_times() const;
  std::string plan_text() const;     // what runs, in order, and the arena: `phonograd inspect --plan`
  std::string kernels_name() const;  // "avx2", "neon", ...

  // The file that training starts from. It stays open while the engine exists, whatever happens to its path.
  const TensorFile& weights() const;
  // Throws Error(weights) if that file was changed or truncated since, or can't be read: parameters that no step has
  // changed are still its pages. step() and logits() check this themselves; call it after reading parameters().
  void require_weights_unchanged() const;

 private:
  std::unique_ptr<LoadedModel> model_;
  std::unique_ptr<TrainingSession> training_;  // until end_training()
  std::unique_ptr<EvaluationSession> evaluation_;
};

}  // namespace phonograd
