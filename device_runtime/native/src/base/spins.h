// How long a thread that waits for another one spins.
#pragma once

#include <sched.h>

namespace phonograd {

constexpr int kFewSpins = 50;

// The most looks at a word before the core is given away. Threads with equal shares meet at a barrier within so many,
// and the tasks of a step follow each other closely. `threads` that outnumber their CPUs spin briefly, since the
// awaited one needs this core. cpus: those they are pinned to, or 0: those that the caller may run on now, some of
// which other programs may take away at any time.
inline int spins_of(int threads, int cpus) {
#if defined(__linux__)
  cpu_set_t set;
  if (cpus == 0 && sched_getaffinity(0, sizeof set, &set) == 0) cpus = CPU_COUNT(&set);
#endif
  return cpus != 0 && threads > cpus ? kFewSpins : 4000;
}

}  // namespace phonograd
