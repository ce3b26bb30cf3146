#include "base/cpu_cores.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <numeric>
#include <string>

#include "base/error.h"

namespace phonograd {
namespace {

// 0 if there is no such file, or no positive number in it.
int64_t number_in(const std::string& path, int base = 10) {
  std::FILE* file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return 0;
  char line[32] = "";
  const bool read = std::fgets(line, sizeof line, file) != nullptr;
  std::fclose(file);
  return read ? std::max(0LL, std::strtoll(line, nullptr, base)) : 0;
}

// Whether a MIDR register's implementer (bits 24 to 31) and part (4 to 15) name a little core: Cortex-A34, A53, A35,
// A55, A510, A520, C1-Nano, and Qualcomm's "Silver" ones. As android_harness/phones/cpu_parts.py has them.
bool is_little_design(int64_t midr) {
  constexpr int kArm = 0x41, kQualcomm = 0x51;
  const auto implementer = static_cast<int>(midr >> 24 & 0xff), part = static_cast<int>(midr >> 4 & 0xfff);
  if (implementer == kQualcomm) return part == 0x801 || part == 0x803 || part == 0x805;
  constexpr int kLittle[] = {0xd02, 0xd03, 0xd04, 0xd05, 0xd46, 0xd80, 0xd8a};
  return implementer == kArm && std::find(std::begin(kLittle), std::end(kLittle), part) != std::end(kLittle);
}

// Capacity is the better measure (a fast little core is still little); older kernels have only the frequency.
int64_t speed(const Core& core, bool by_capacity) {
  return by_capacity ? core.capacity : core.max_khz;
}

// Whether to compare cores by capacity: all have one and they differ, or there are no frequencies either. Where the
// device tree has no capacities, the kernel reports the same one for all.
bool capacities_tell(const std::vector<Core>& cores) {
  const auto [least, most] = std::minmax_element(cores.begin(), cores.end(),
                                                 [](const Core& a, const Core& b) { return a.capacity < b.capacity; });
  const bool clocked = std::all_of(cores.begin(), cores.end(), [](const Core& core) { return core.max_khz > 0; });
  return least->capacity > 0 && (least->capacity < most->capacity || !clocked);
}

// Whether one core is slower than another: by speed, then by design.
bool slower(const Core& a, const Core& b, bool by_capacity) {
  const int64_t of_a = speed(a, by_capacity), of_b = speed(b, by_capacity);
  return of_a != of_b ? of_a < of_b : a.little_design && !b.little_design;
}

#if defined(__linux__)

std::vector<int> allowed_numbers() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) {
    throw Error(Status::unsupported, std::string("cannot read which cores this process may use: ") +
                                         std::strerror(errno) + "; run without pinning and without a choice of cores");
  }
  std::vector<int> numbers;
  for (int number = 0; number < CPU_SETSIZE; ++number) {
    if (CPU_ISSET(static_cast<size_t>(number), &set)) numbers.push_back(number);
  }
  return numbers;
}

#else

// macOS gives every process all cores, and does not tell them apart here.
std::vector<int> allowed_numbers() {
  std::vector<int> numbers(static_cast<size_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN))));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

#endif

}  // namespace

std::vector<Core> allowed_cores() {
  std::vector<Core> cores;
  for (const int number : allowed_numbers()) {
    const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(number);
    const int64_t midr = number_in(folder + "/regs/identification/midr_el1", 16);
    cores.push_back({number, number_in(folder + "/cpufreq/cpuinfo_max_freq"), number_in(folder + "/cpu_capacity"),
                     is_little_design(midr)});
  }
  return cores;
}

std::vector<Core> fastest_first(std::vector<Core> cores) {
  if (cores.empty()) return cores;
  const bool by_capacity = capacities_tell(cores);
  std::stable_sort(cores.begin(), cores.end(),
                   [by_capacity](const Core& a, const Core& b) { return slower(b, a, by_capacity); });
  return cores;
}

std::vector<Core> big_cores(const std::vector<Core>& cores) {
  std::vector<Core> big;
  if (cores.empty()) return big;
  const bool by_capacity = capacities_tell(cores);
  const Core fastest = fastest_first(cores).front();
  const int64_t most = speed(fastest, by_capacity);
  if (most == 0) return big;
  for (const Core& core : cores) {
    const bool little_design = core.little_design && !fastest.little_design;
    const int64_t is = speed(core, by_capacity);
    if (by_capacity ? 2 * is >= most : !little_design && 5 * is >= 4 * most) big.push_back(core);
  }
  return big;
}

}  // namespace phonograd
