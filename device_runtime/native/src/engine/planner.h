// Makes a Program: which nodes run as one, which values need memory, and from when to when.
#pragma once

#include <set>

#include "engine/program.h"
#include "operators/distillation.h"

namespace phonograd {

class Planner {
 public:
  Planner(Program& program, const Compute& compute, const std::map<std::string, float*>& parameters,
          const ProgramOptions& options);
  void plan();

 private:
  friend class PlannedNode;

  Tensor* use(int value);           // in the piece of work being made
  Tensor* use_if_there(int value);  // nullptr for -1
  Tensor* scratch(const std::string& name, int64_t floats, bool kept);
  void keep(const Tensor* tensor);  // until the step has ended
  bool has_memory(int value) const;
  void fuse(std::vector<MarkedGradient>& gradients);
  void leave_factored(const MarkedGradient& gradient);
  void add_piece(std::unique_ptr<Operator> work, const std::string& nodes);
  void add_node(int node);
  void add_output_layer(const OutputLayer& layer);
  void add_adapter_gradient(const AdapterGradient& gradient);
  DistillationTensors soft_targets(const OutputLayer::SoftTargets& soft);
  void add_update(const std::vector<MarkedGradient>& marked);
  ParameterGradient planned(const MarkedGradient& gradient);
  Factors factors_of(const GradientTerm& term);
  void lay_out_arena();
  void place_inputs();
  void resolve_views();

  Program& program_;
  const Graph& graph_;
  const Compute& compute_;
  const std::map<std::string, float*>& parameters_;
  const ProgramOptions& options_;
  int now_ = 0;  // number of the piece of work being made
  std::map<const Tensor*, Lifetime> lives_;
  std::vector<Tensor*> order_;  // of their first use, so that plans do not depend on addresses
  std::set<const Tensor*> kept_;
  std::map<int, int> made_by_piece_;  // factored gradient (value) -> piece that knows its factors
  std::set<int> factored_;            // gradients (values) that are left as factors, or rows, and have no memory
  std::set<int> fused_nodes_;
  std::map<int, OutputLayer> layers_;           // by the node in whose place they run
  std::map<int, AdapterGradient> of_adapters_;  // likewise
};

}  // namespace phonograd
