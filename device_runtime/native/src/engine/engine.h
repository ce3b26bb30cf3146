// The engine's C++ interface: a language model from an artifacts folder, trained and evaluated window by window. The
// phone command uses it directly; the C ABI (include/phonograd.h), which Python calls, is a thin layer over it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "formats/manifest.h"
#include "text/output_sample.h"

namespace phonograd {

class TensorFile;

enum class Precision { fp32, bf16, bf16_emulated };

// Their names in commands and files, in that order.
constexpr const char* kPrecisionNames[] = {"fp32", "bf16", "bf16-emulated"};

inline const char* name_of(Precision precision) {
  return kPrecisionNames[static_cast<size_t>(precision)];
}

struct EngineOptions {
  int threads = 2;
  uint64_t seed = 0;         // of the dropout masks
  bool pin_threads = false;  // thread i to the i-th fastest CPU this process may run on
  bool fuse = true;          // false: every node by itself, for tests
  Precision precision = Precision::fp32;
  std::string kernels;  // "" : the best this CPU has; else a name that `kernel_sets()` lists
};

// Seconds of the last step by phase, in the order of the plan; the sum is the step.
struct PhaseTime {
  std::string phase;
  double seconds = 0;
};

// Recurrent states of one text: the tensors named in the manifest, [1, B, H] each.
struct RecurrentState {
  std::string name;  // the graph's input
  std::vector<int64_t> shape;
  float* data = nullptr;  // owned by the engine, valid until it is destroyed
};

// One trainable tensor. `data` is the engine's own memory: float32, valid until the engine is destroyed, and changed by
// step(). Untouched pages are still those of the weights file.
struct Parameter {
  std::string name;
  std::vector<int64_t> shape;
  float* data = nullptr;
  // With an output sample, of a tensor that has a row a word, until end_training(): the candidates' rows one after the
  // other, where step() changes them, and their numbers, rising. scatter() copies them into `data`.
  float* packed = nullptr;
  const std::vector<uint32_t>* packed_rows = nullptr;
  // Likewise: numbers, rising, of the rows of `data` that alone may differ from the weights file's. nullptr: all may.
  const std::vector<uint32_t>* changed_rows = nullptr;
};

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

  // From now on the windows of a text make a single step, with the gradient of all of them (FedSGD): step() reads the
  // weights that training started from, and adds what it would subtract from them to a copy, unclipped. Give it the
  // learning rate divided by the number of windows, and end with finish_full_batch(). Call it before the first step().
  void start_full_batch();
  bool full_batch() const;
  // Clip the gradient of all windows as a step clips its own; `learning_rate` is the whole step's. Throws
  // Error(training) if it is not finite.
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
  // Give back the memory of step(), which must not be called any more, nor reset(); then scatter.
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
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace phonograd
