// The next model while links are applied to it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/files.h"
#include "formats/tensor_file.h"
#include "update/link.h"

namespace phonograd {

// A copy of a model in a file, whose weights are read and written in pieces. One thread at a time.
class Draft {
 public:
  // Copies the tensors of `base`, all float32, with other metadata. Throws Error: weights for other tensors, or if the
  // base can't be read; storage.
  Draft(const TensorFile& base, const Metadata& metadata, AtomicFile& file);

  const std::vector<TensorSpec>& specs() const { return specs_; }  // with their places in the file
  size_t bytes() const { return bytes_; }                          // of the file

  // Write `count` weights of a tensor from element `start` on. Throws Error(weights), which names `source`, for one
  // that is not finite.
  void write(const std::string& source, const TensorSpec& tensor, size_t start, size_t count, const float* values);
  // Add deltas in the same way. A weight that equals the sum keeps its bits: -0.0 + 0.0 changes nothing.
  void add(const std::string& source, const TensorSpec& tensor, size_t start, size_t count, const float* deltas);

 private:
  AtomicFile& file_;
  std::vector<TensorSpec> specs_;
  size_t bytes_ = 0;
  std::vector<float> sums_;
};

}  // namespace phonograd
