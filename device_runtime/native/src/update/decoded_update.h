// An update as a server takes it: decoded on its model, checked, measured, and added to a round's sums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "kernels/kernel_set.h"
#include "update/decoder.h"

namespace phonograd {

// The kernels' results do not depend on the machine, and each tensor's tiles are added in order, so all it computes are
// the same bits everywhere. One thread at a time.
class DecodedUpdate {
 public:
  // base: the model that it was made from, all float32, without the `frozen` tensors; onto: another one of the same
  // tensors, on which it is to stand, see Decoder; nullptr: the same. held: an update of at most so many weights is
  // decoded once and kept, 8 bytes a weight. All must outlive it. Throws Error: update for parts that do not fit the
  // base, weights for another model that doesn't.
  DecodedUpdate(const UpdateReader& update, const TensorFile& base, const std::set<std::string>& frozen,
                const TensorFile* onto, size_t held);

  // Each tensor's norms, in the model's order. Throws Error: weights for a delta that is not finite; update for parts
  // that disagree.
  const std::vector<DeltaNorms>& measure();
  // sums[tensor][element] += weight * (delta * steps_per_unit * the tensor's scale), rounded to the nearest integer,
  // or, with scales, towards zero, before the weight. scales: one for each tensor; nullptr: none. The sums must have
  // room for it. Throws what measure() does; the sums are of no use then.
  void add(double steps_per_unit, int64_t weight, const double* scales, int64_t* const* sums);
  // Measures, and adds in the same pass, without scales, if every |delta| is below `limit`: a delta is read while it is
  // in the cache. Meanwhile the sums may wrap around. What it does not add it leaves as it was, also when it throws
  // what measure() does; Error storage: an update that was read once can't be read again, and the sums are of no use.
  const std::vector<DeltaNorms>& take(double steps_per_unit, int64_t weight, double limit, int64_t* const* sums);

 private:
  struct Tile {
    size_t tensor;
    std::vector<TileRun> runs;
    const double* deltas;  // of all runs, one after the other
    DeltaNorms norms;
  };
  template <typename Work>
  void for_each_tile(Work work);
  template <typename Work>
  void decode(bool hold, Work work);
  void take_back(size_t tiles, const DeltaSteps& steps, int64_t* const* sums);
  static void note(const Tile& tile, std::vector<DeltaNorms>& norms);
  static void add_tile(const Tile& tile, const DeltaSteps& steps, int64_t* const* sums);
  [[noreturn]] void refuse(const Tile& tile, size_t count) const;

  const std::vector<TensorSpec>& specs_;
  std::vector<std::unique_ptr<Decoder>> decoders_;  // of each tensor; nullptr of a frozen one
  std::vector<float> trained_, old_;                // of a tile
  std::unique_ptr<double[]> deltas_;                // of a tile, or of all that are held
  size_t elements_ = 0;                             // that the update has
  bool holds_, held_ = false;                       // whether it is to keep them; whether `tiles_` has all
  std::vector<Tile> tiles_;
  std::vector<DeltaNorms> norms_;  // once measured
};

}  // namespace phonograd
