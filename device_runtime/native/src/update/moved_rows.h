// Which rows of a tensor training has changed, told without the weights it started from staying in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "formats/tensor_file.h"

namespace phonograd {

// Elements of a row: the last dimension, 1 for a scalar.
size_t row_elements(const TensorSpec& spec);

// Numbers, rising, of the rows of `trained` whose bits differ from those of the base's tensor `spec` (float32, of the
// same shape); it stops early once there are `enough` of them. Reads the base in pieces and lets go of their pages, so
// that they never count as resident memory. Thread-safe.
std::vector<uint32_t> moved_rows(const TensorFile& base, const TensorSpec& spec, const float* trained, size_t enough);

}  // namespace phonograd
