// A graph turned into work in order and memory for it.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/memory.h"
#include "engine/arena.h"
#include "engine/compute.h"
#include "engine/parameters.h"
#include "graph/fusion.h"
#include "operators/update.h"

namespace phonograd {

struct ProgramOptions {
  bool fuse = true;
  bool updates = false;  // an optimizer follows: gradients marked by InPlaceAccumulatorV2 change their parameters
  float clip_norm = 0;   // 0: none
  // What updates change in place of the parameters of these names, and no node reads. Absent names: the parameters.
  std::map<std::string, float*> targets = {};
};

// Runs on one thread at a time, with the Compute it is given. Allocates nothing after its constructor.
class Program {
 public:
  // parameters: memory of the graph's inputs of these names; the caller's, outliving the program. Other inputs and all
  // else get memory here, zero at first. Throws Error(artifacts) for a graph that can't be planned.
  Program(std::unique_ptr<Graph> graph, const Compute& compute, const std::map<std::string, float*>& parameters,
          const ProgramOptions& options);

  void run(Run& run);

  // A value's memory: an input, an output, or (unless fused) any value; nullptr if no value has that name.
  Tensor* find(const std::string& name);
  // The same for one that must be there: throws Error(artifacts) if it is not, or has another type or shape.
  Tensor& need(const std::string& name, DataType type, const Shape& shape);
  const Graph& graph() const { return *graph_; }
  const std::vector<PhaseTime>& phases() const { return phases_; }
  size_t arena_bytes() const { return arena_.bytes(); }
  std::string plan_text() const;

 private:
  friend class Planner;

  struct Piece {
    std::unique_ptr<Operator> work;
    size_t phase;
    std::string nodes;  // their names
  };

  std::unique_ptr<Graph> graph_;
  std::vector<std::unique_ptr<Tensor>> tensors_;  // of values by number, then of scratch memory
  std::vector<std::pair<std::string, Lifetime>> lifetimes_;
  std::vector<Piece> pieces_;
  std::vector<PhaseTime> phases_;
  Memory arena_, inputs_;
};

// A recurrent state in a program, and the value that it becomes.
struct CarriedState {
  Tensor *now, *next;
  void carry() { std::memcpy(now->data, next->data, now->bytes()); }
  void clear() { std::memset(now->data, 0, now->bytes()); }
};

}  // namespace phonograd
