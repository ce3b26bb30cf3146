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
// Reads it from a model, which must outlive it. Throws Error(weights) for a model that has no such tensor.
ReadBase reader_of(const TensorFile& model, const TensorSpec& tensor);

// The trained weights of one float32 tensor. One thread at a time.
class Decoder {
 public:
  // `tile`: weights that are decoded at once, a multiple of 4096. onto: another model, on which the weights come to
  // stand: onto + (trained - base), in double, rounded to float; none: they stay as they are. The update and what
  // `base` and `onto` read must outlive it. Throws Error(update) for parts that are not the tensor's.
  Decoder(const UpdateReader& update, const TensorSpec& tensor, ReadBase base, size_t tile, ReadBase onto = nullptr);

  // The next weights, and which they are: `values` has those of all `runs`, one run after the other, which rise and are
  // at most `tile` long. False once there are no more; what is in no run did not move. `capacity` of `values`: at least
  // `tile`, or all elements of the tensor. old: as many, gets the weights of the model that they stand on; nullptr:
  // they are not wanted. Throws Error(update) for parts that disagree, and what `base` throws.
  bool next(float* values, size_t capacity, std::vector<TileRun>& runs, float* old = nullptr);

  size_t elements() const { return elements_; }  // that the update holds
  void rewind() { at_ = 0; }                     // next() begins again

 private:
  size_t piece_end() const;
  void add_runs(size_t end, float* values, float* old, std::vector<TileRun>& runs);
  void place(const TileRun& run, float* own, float* old);

  SentValues sent_;
  ReadBase base_, onto_;
  size_t tile_, width_, elements_, at_ = 0;
  std::vector<float> base_weights_, onto_weights_;
};

// Throws Error(update) for a decoded weight that is not finite.
void check_finite(const UpdateReader& update, const TensorSpec& tensor, const std::vector<TileRun>& runs,
                  const float* values);

}  // namespace phonograd
