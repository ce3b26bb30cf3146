// Cores as `number max_khz capacity little_design` lines on stdin, --cores as the argument: prints the numbers of those
// chosen, the fastest first, or the error. For test_cores.py.
#include <cstdio>

#include "base/error.h"
#include "phone/cores.h"

int main(int, char** arguments) {
  using namespace phonograd;
  std::vector<Core> cores;
  Core core;
  int little = 0;
  long long khz = 0, capacity = 0;
  while (std::scanf("%d %lld %lld %d", &core.number, &khz, &capacity, &little) == 4) {
    cores.push_back({core.number, khz, capacity, little != 0});
  }
  try {
    for (const Core& chosen : fastest_first(phone::chosen_cores(cores, arguments[1]))) {
      std::printf("%d ", chosen.number);
    }
  } catch (const Error& error) {
    std::printf("%s", error.what());
  }
  return 0;
}
