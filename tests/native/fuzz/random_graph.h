// Graphs for fuzz_planner: made of the engine's operators, and changed, by the decisions that a fuzzer's bytes are.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/onnx_model.h"

namespace phonograd {

// Bytes read as decisions. When they are used up, every decision is 0.
class Decisions {
 public:
  Decisions(const uint8_t* bytes, size_t size) : bytes_(bytes), size_(size) {}
  // In [0, choices), at most 256 of them.
  size_t below(size_t choices) { return at_ < size_ ? bytes_[at_++] % choices : 0; }
  bool one_in(size_t choices) { return below(choices) == choices - 1; }
  bool left() const { return at_ < size_; }

 private:
  const uint8_t* bytes_;
  size_t size_, at_ = 0;
};

// A graph of small shapes, most of whose nodes fit their inputs. Its marked gradients belong to parameters.
onnx::Model random_graph(Decisions& decisions);

// Drops, repeats, moves and swaps nodes; leaves out, exchanges and repeats names; changes shapes, constants and
// attributes. Few graphs are still valid then.
void change_graph(onnx::Model& model, Decisions& decisions);

}  // namespace phonograd
