// Deltas (trained - base), and which rows changed. The base does not stay resident: pages of its mapping are released,
// and what is read in many short runs is copied past the mapping. FORMAT.md, "Updates".
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "formats/tensor_file.h"
#include "update/codec.h"
#include "update/sent_rows.h"

namespace phonograd {

constexpr float kLargestDelta = 0x1p100f;  // others are cut to it

// Ascending numbers of the rows of `trained` whose bits differ from the base's tensor `spec` (float32, same shape).
// Stops once it has found `enough`. Thread-safe.
std::vector<uint32_t> moved_rows(const TensorFile& base, const TensorSpec& spec, const Trained& trained, size_t enough);

// The same of rows that lie one after the other at `packed`, which are those of the numbers `rows` of the tensor,
// rising.
std::vector<uint32_t> moved_rows(const TensorFile& base, const TensorSpec& spec, const std::vector<uint32_t>& rows,
                                 const float* packed);

// The deltas of one float32 tensor, cut to ±2^100. Not thread-safe.
class Deltas {
 public:
  // `base` is the tensor's spec in `file`; all stay the caller's.
  Deltas(const TensorFile& file, const TensorSpec& base, const Trained& trained);

  size_t rows() const { return rows_; }
  size_t width() const { return width_; }
  size_t elements() const { return rows_ * width_; }

  // Elements [start, start + count) of the tensor seen as one dimension. Throws Error(weights) if the base was cut.
  void read(size_t start, size_t count, float* out);
  // Elements [start, start + count) of these rows concatenated.
  void read_rows(const std::vector<uint32_t>& rows, size_t start, size_t count, float* out);

 private:
  void read_moved(size_t start, size_t count, float* out);

  const TensorFile& file_;
  size_t base_;  // its place in the file
  const float* trained_;
  size_t width_, rows_;
  std::vector<bool> may_move_;  // by row; empty where all may
};

}  // namespace phonograd
