// The next model while links are applied to it.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "base/files.h"
#include "formats/tensor_file.h"
#include "update/update_reader.h"

namespace phonograd {

// A copy of a model in a file, whose weights are read and written in pieces. One thread at a time.
class Draft {
 public:
  // Copies the tensors of `base`, all float32, with other metadata. Throws Error: weights for other tensors, or if the
  // base can't be read; storage.
  Draft(const TensorFile& base, const Metadata& metadata, AtomicFile& file);

  const std::vector<TensorSpec>& specs() const { return specs_; }  // with their places in the file
  size_t bytes() const { return bytes_; }                          // of the file

  // Write the weights of an update or link over those that are here, but for the `frozen` tensors. Throws Error(update)
  // for parts that do not fit the model, or a weight that is not finite, which leaves some written; storage.
  void apply(const UpdateReader& link, const std::set<std::string>& frozen);

 private:
  AtomicFile& file_;
  std::vector<TensorSpec> specs_;
  size_t bytes_ = 0;
};

}  // namespace phonograd
