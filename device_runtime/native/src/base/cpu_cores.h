// The CPU cores that a thread may run on, as the kernel describes them.
#pragma once

#include <cstdint>
#include <vector>

namespace phonograd {

struct Core {
  int number = 0;
  int64_t max_khz = 0;         // 0 if /sys does not have it
  int64_t capacity = 0;        // the fastest core has 1024; 0 if /sys does not have it
  bool little_design = false;  // the part number is a power-saving design; false if /sys has no part number
};

// The cores the calling thread may run on, by number. Throws Error(unsupported) if the kernel does not report them.
std::vector<Core> allowed_cores();

// The same cores sorted by speed, fastest first. The sort is stable.
std::vector<Core> fastest_first(std::vector<Core> cores);

// The cores that are not much slower than the fastest, in the order given. By capacity: at least half of the fastest
// core's. Where capacities are missing or all equal: not a little design, and at least four fifths of its clock. Empty
// if /sys has neither. If all cores have the same speed, all are big.
std::vector<Core> big_cores(const std::vector<Core>& cores);

}  // namespace phonograd
