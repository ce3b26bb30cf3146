// Deltas as whole numbers on a grid that is the same for all phones, so that their sums are exact. FORMAT.md, "Masked
// rounds", grid update.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/thread_pool.h"
#include "formats/hashed_file.h"
#include "formats/tensor_file.h"
#include "masked/discrete_gaussian.h"
#include "masked/settings.h"

namespace phonograd {

// What a grid update tells the masking of the training that it is from.
struct GridInfo {
  std::string settings;  // the server's text
  std::string base_sha256;
  int64_t tokens = 0;
  bool one_step = false;  // of the training
};

// Round trained weights to the grid and write the grid update, which must not leave the phone. `trained`: the engine's
// tensors; frozen ones of the base are left out. Throws Error: usage for the settings, weights if the base was changed
// or a tensor does not fit it, storage, unsupported if the system has no random bytes.
Written write_grid(OutputFile& file, const TensorFile& base, const std::vector<TensorOut>& trained,
                   const GridInfo& info);

// One open for reading: the values that a phone sends, before masks. Const methods are thread-safe.
class GridUpdate {
 public:
  // Throws Error(update) for what is no whole grid update.
  explicit GridUpdate(const std::string& path);

  const GridInfo& info() const { return info_; }
  const GridShape& shape() const { return shape_; }
  // Draw the noise that read() adds from now on, if the settings ask for it.
  void draw_noise();
  // Values [start, start + count) times the phone's weight, with noise, and the weight as the last one. start: a
  // multiple of 4.
  void read(size_t start, size_t count, uint32_t* values) const;

 private:
  TensorFile file_;
  GridInfo info_;
  GridShape shape_;
  int64_t weight_ = 1;
  std::optional<DiscreteGaussian> noise_;
  Secret<32> key_;  // of the noise
};

// Summed values [shape.codes()], times the step and divided by `divisor`, as the deltas [4096 * columns] of all weights
// that are not frozen, one after the other; the last few are of no weight. Of the info, settings and base alone are
// read.
void decode_grid(const int32_t* sums, const GridShape& shape, const GridInfo& info, double divisor, ThreadPool& pool,
                 float* deltas);

}  // namespace phonograd
