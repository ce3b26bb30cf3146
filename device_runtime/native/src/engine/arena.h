// Memory for the values of a step: each lives from its first use to its last, and values whose lives do not overlap may
// share memory.
#pragma once

#include <cstddef>
#include <vector>

namespace phonograd {

struct Lifetime {
  size_t bytes = 0;
  int first = 0, last = 0;  // numbers of the pieces of work that use it first and last
  size_t offset = 0;        // where it was put
};

// Gives every lifetime its offset (a multiple of 64) and returns the bytes needed in all: largest first, each at the
// lowest place that is free during its life.
size_t lay_out(std::vector<Lifetime>& lifetimes);

}  // namespace phonograd
