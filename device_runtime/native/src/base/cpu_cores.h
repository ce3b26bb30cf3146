// The CPU's cores that a thread may run on, as the kernel describes them.
#pragma once

#include <cstdint>
#include <vector>

namespace phonograd {

struct Core {
  int number = 0;
  int64_t max_khz = 0;         // 0: /sys does not say
  int64_t capacity = 0;        // of the fastest core's 1024; 0: /sys does not say
  bool little_design = false;  // by its part number, one of those made for saving power; false also where /sys has none
};

// The cores the calling thread may run on, by number. Throws Error(unsupported) if the kernel refuses to say.
std::vector<Core> allowed_cores();

// The same cores, the fastest first; those of one speed stay in their order.
std::vector<Core> fastest_first(std::vector<Core> cores);

// Those that are not much slower than the fastest, in their order: at least half of its capacity; where capacities
// don't tell, not of a little design and at least four fifths of its clock. Empty where /sys tells neither. Cores of
// one speed are all big.
std::vector<Core> big_ones(const std::vector<Core>& cores);

}  // namespace phonograd
