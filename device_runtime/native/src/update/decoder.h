// Trained weights of an update, decoded piece by piece.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "update/update_reader.h"

namespace phonograd {

// Neighbouring elements of a tensor, seen as one dimension.
struct TileRun {
  size_t start = 0, count = 0;
};

// Gives elements [start, start + count) of the tensor that training started from.
using ReadBase = std::function<void(size_t start, size_t count, float* out)>;

// The trained weights of one float32 tensor. One thread at a time.
class Decoder {
 public:
  // `tile`: weights that are decoded at once, a multiple of 4096. The update and what `base` reads must outlive it.
  // Throws Error(update) for parts that are not the tensor's.
  Decoder(const UpdateReader& update, const TensorSpec& tensor, ReadBase base, size_t tile);

  // The next weights, and which they are: `values` has those of all `runs`, one run after the other, which rise and are
  // at most `tile` long. False once there are no more; what is in no run did not move. `capacity` of `values`: at least
  // `tile`, or all elements of the tensor. Throws Error(update) for parts that disagree, and what `base` throws.
  bool next(float* values, size_t capacity, std::vector<TileRun>& runs);

 private:
  size_t piece_end() const;
  void add_runs(size_t end, float* values, std::vector<TileRun>& runs);

  SentValues sent_;
  ReadBase base_;
  size_t tile_, width_, elements_, at_ = 0;
  std::vector<float> old_;
};

// Throws Error(update) for a decoded weight that is not finite.
void check_finite(const UpdateReader& update, const TensorSpec& tensor, const std::vector<TileRun>& runs,
                  const float* values);

}  // namespace phonograd
