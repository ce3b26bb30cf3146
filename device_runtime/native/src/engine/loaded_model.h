// A model as it was loaded from its artifacts folder: what sessions of training and of evaluation share.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mapping.h"
#include "engine/candidates.h"
#include "engine/compute.h"
#include "engine/parameters.h"
#include "engine/teacher.h"
#include "formats/manifest.h"
#include "formats/tensor_file.h"
#include "graph/graph.h"

namespace phonograd {

// The tensor that a graph's input of this name holds, of the model or of its teacher.
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
  // The file of a graph's input, and the tensor in it; nullptr if there is none of that name.
  const TensorFile& file_of(const std::string& input) const;
  const TensorSpec* spec_of(const std::string& input) const;
  // The values of a graph's input as the file has them, whatever training does.
  float* base_of(const std::string& input) const;
  // Kernels and threads, in a line: `phonograd inspect --plan`.
  std::string compute_text() const;

  const Manifest manifest;
  const EngineOptions options;
  TensorFile file;
  Compute compute;
  const std::unique_ptr<const Teacher> teacher;  // nullptr: the model as it was sent
  BoundParameters memory;                        // the model's tensors, and under kTeacherPrefix a file's own pages
  std::vector<Parameter> parameters;
  Candidates candidates;

 private:
  void bind_weights();
  void check_finite();

  Mapping writable_;  // the weights, pages copied as they change
};

}  // namespace phonograd
