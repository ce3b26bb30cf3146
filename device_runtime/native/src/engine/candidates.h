// An output sample in the engine: where each candidate is among them, and their rows of the parameters, side by side.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/memory.h"
#include "engine/parameters.h"
#include "formats/tensor_file.h"
#include "text/output_sample.h"

namespace phonograd {

// Owns the packed rows. Not thread-safe.
class Candidates {
 public:
  // Without candidates, the output layer is not sampled, and nothing below is called. Throws Error(usage) like Engine's
  // constructor.
  Candidates(const OutputSample& sample, int64_t vocabulary);

  const OutputSample& sample() const { return sample_; }
  bool empty() const { return sample_.candidates.empty(); }
  int64_t count() const { return static_cast<int64_t>(sample_.candidates.size()); }

  // Write the place of each of `count` ids among the candidates; an id of -1, where `ignored` says so, stays. Throws
  // Error(training) naming the first that is no candidate.
  void places(const int64_t* ids, size_t count, bool ignored, int64_t* places) const;

  // The candidates' rows of a tensor [V, ...], copied from the file without leaving its pages resident.
  float* gather(const TensorFile& file, const TensorSpec& spec, const std::string& name);
  // Copy them once more: what a full batch reads while the rows of `gather` change.
  float* gather_base(const TensorFile& file, const TensorSpec& spec, const std::string& name) {
    return gather(file, spec, kBase + name);
  }
  // From now on step() trains what was gathered for that name in place of the parameter's own rows.
  void bind(Parameter& parameter);
  // Copy a parameter's packed rows into its `data`. The first time, when that is still the file's, rows that did not
  // move are left out: each would make a page or two of it the process's own.
  void scatter(Parameter& parameter, const TensorFile& file);
  // Give back the memory of a parameter's packed rows.
  void unbind(Parameter& parameter);

 private:
  static constexpr const char* kBase = "base.";

  OutputSample sample_;
  std::vector<uint32_t> rows_;   // the candidates
  std::vector<int32_t> places_;  // [V], -1 for no candidate
  std::map<std::string, Memory> packed_;
  std::map<std::string, std::vector<uint32_t>> scattered_;  // rows of a parameter that were copied into its data
};

}  // namespace phonograd
