// The server's sum of masked updates, and how the masks come out of it. FORMAT.md, "Masked rounds".
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "base/thread_pool.h"
#include "masked/cohort.h"
#include "masked/grid.h"
#include "masked/masked_file.h"
#include "masked/masks.h"

namespace phonograd {

// Memory: one number for each value. Not thread-safe; runs its own threads.
class MaskedSum {
 public:
  MaskedSum(size_t values, int width, int threads);

  size_t values() const { return sums_.size(); }
  int width() const { return width_; }
  // Add what a masked file holds, which was checked: check_masked().
  void add(const TensorFile& file);
  // Add what a phone would send but for its masks. Throws Error(update) unless it has as many values.
  void add(GridUpdate& grid);
  // Take the masks out of the sum of all that are alive; returns the phones whose shares did not fit. The answers are
  // those of phones that gave one. Throws Error(update), and the sum is of no use, if a secret can't be put together or
  // the sum can't be one of codes.
  std::set<size_t> unmask(const Cohort& cohort, const std::map<size_t, Answer>& answers);
  // The sum of each value, the weight last; once unmasked.
  const int32_t* sums() const { return reinterpret_cast<const int32_t*>(sums_.data()); }
  ThreadPool& pool() { return pool_; }

 private:
  template <typename Work>
  void for_tiles(Work work);
  void check(const Cohort& cohort);

  std::vector<uint32_t> sums_;
  int width_;
  ThreadPool pool_;
};

}  // namespace phonograd
