// A model as it was loaded from its artifacts folder: what sessions of training and of evaluation share.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/mapping.h"
#include "engine/candidates.h"
#include "engine/compute.h"
#include "engine/parameters.h"
#include "formats/manifest.h"
#include "formats/tensor_file.h"
#include "graph/graph.h"

namespace phonograd {

constexpr const char* kTeacherPrefix = "teacher.";

// The tensor that a graph's input of this name holds; a teacher's is the model's.
std::string tensor_name(const std::string& input);

// Memory of a graph's parameters, by the names of its inputs.
using BoundParameters = std::map<std::string, float*>;

// Owns the weights: pages of their file, which become the process's own when training changes them. Not thread-safe.
class LoadedModel {
 public:
  // Loads what Engine's constructor does, but for the graphs, which sessions read.
  LoadedModel(const std::string& folder, const std::string& weights, const EngineOptions& options,
              const OutputSample& sample);

  // Throws Error(weights) if the file was changed since, or can't be read.
  void require_unchanged() const;
  // Holds a graph's inputs to the shapes of the tensors that they are bound to. Throws Error(artifacts).
  void check_parameters(const Graph& graph, const BoundParameters& bound) const;
  // The weights of that tensor as the file has them, whatever training does.
  float* base_of(const std::string& name) const { return memory.at(kTeacherPrefix + tensor_name(name)); }
  // Kernels and threads, in a line: `phonograd inspect --plan`.
  std::string compute_text() const;

  const Manifest manifest;
  const EngineOptions options;
  TensorFile file;
  Compute compute;
  BoundParameters memory;  // the model's tensors, and under kTeacherPrefix the file's own pages
  std::vector<Parameter> parameters;
  Candidates candidates;

 private:
  void bind_weights();
  void check_finite();

  Mapping writable_;  // the weights, pages copied as they change
};

}  // namespace phonograd
