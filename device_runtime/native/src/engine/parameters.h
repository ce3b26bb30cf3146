// What an engine is opened with, and what of its model others read: parameters, recurrent states, times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace phonograd {

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
  // The windows of a text make a single step, with the gradient of all of them (FedSGD): step() reads the weights that
  // training started from, and adds what it would subtract from them to a copy, unclipped. Give it the learning rate
  // divided by the number of windows, and end with finish_full_batch().
  bool full_batch = false;
  bool fuse = true;  // false: every node by itself, for tests
  Precision precision = Precision::fp32;
  std::string kernels;  // "" : the best this CPU has; else a name that `kernel_sets()` lists
  std::string teacher;  // of an LwF graph that was made for it: the teacher's artifacts; "": the model itself
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

}  // namespace phonograd
