// Two pinned thread pools in one process: prints, for each, the CPUs its threads work on, thread 0 first, and then how
// many CPUs the caller has. For test_cores.py.
#include <sched.h>

#include <cstdio>
#include <vector>

#include "base/thread_pool.h"

namespace {

// The one CPU that the calling thread is allowed, or -1 where there are several.
int only_cpu() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0 || CPU_COUNT(&set) != 1) return -1;
  int cpu = 0;
  while (!CPU_ISSET(static_cast<size_t>(cpu), &set)) ++cpu;
  return cpu;
}

int allowed() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}

}  // namespace

int main() {
  const int threads = allowed();
  phonograd::ThreadPool first(threads, true), second(threads, true);
  for (phonograd::ThreadPool* pool : {&first, &second}) {
    std::vector<int> cpus(static_cast<size_t>(threads), -1);
    pool->run([&](int thread) { cpus[static_cast<size_t>(thread)] = only_cpu(); });
    for (const int cpu : cpus) std::printf("%d ", cpu);
    std::printf("%d\n", allowed());
  }
  return 0;
}
