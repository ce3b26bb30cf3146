// Low-rank adapters in a model's tensor file: a matrix W acts as W + B A. FORMAT.md, "Adapters".
#pragma once

#include <string>
#include <vector>

#include "formats/tensor_file.h"

namespace phonograd {

constexpr const char* kAdapterA = ".adapter.A";  // of W's [rows, columns]: [R, columns]
constexpr const char* kAdapterB = ".adapter.B";  // [rows, R]

// Whether a tensor of this name is half of an adapter.
bool is_adapter(const std::string& name);

// A float32 tensor as rows of its last dimension, with its adapter added if it has one. The file must outlive it. One
// thread at a time.
class AdaptedRows {
 public:
  // Throws Error(weights) for another dtype, a tensor without rows, and an adapter that does not fit it.
  AdaptedRows(const TensorFile& file, const TensorSpec& tensor);

  size_t count() const { return count_; }
  size_t width() const { return width_; }
  const float* row(size_t number);  // valid until the next call

 private:
  size_t width_, count_, rank_ = 0;
  const float *values_, *a_ = nullptr, *b_ = nullptr;
  std::vector<double> sums_;
  std::vector<float> row_;
};

}  // namespace phonograd
