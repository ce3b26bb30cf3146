#include "phone/cores.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/error.h"

namespace phonograd::phone {
namespace {

constexpr int kMaskDigits = CPU_SETSIZE / 4;

int64_t number_in(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return 0;
  long long value = 0;
  const bool read = std::fscanf(file, "%18lld", &value) == 1;
  std::fclose(file);
  return read && value > 0 ? value : 0;
}

// Capacity tells kinds apart best (a fast little core is still little); frequency is what older kernels have.
int64_t speed(const Core& core, bool by_capacity) {
  return by_capacity ? core.capacity : core.max_khz;
}

// Whether to go by capacity: all cores have one, and not the same, as where the kernel was never told any. The same is
// still better than no frequency.
bool capacities_tell(const std::vector<Core>& cores) {
  const auto [least, most] = std::minmax_element(cores.begin(), cores.end(),
                                                 [](const Core& a, const Core& b) { return a.capacity < b.capacity; });
  const bool clocked = std::all_of(cores.begin(), cores.end(), [](const Core& core) { return core.max_khz > 0; });
  return least->capacity > 0 && (least->capacity < most->capacity || !clocked);
}

std::vector<int> of_kind(const std::vector<Core>& cores, const std::string& kind) {
  const bool by_capacity = capacities_tell(cores);
  const auto slower = [&](const Core& a, const Core& b) { return speed(a, by_capacity) < speed(b, by_capacity); };
  const auto [slowest, fastest] = std::minmax_element(cores.begin(), cores.end(), slower);
  const int64_t low = speed(*slowest, by_capacity), high = speed(*fastest, by_capacity);
  if (low == 0) {
    throw Error(Status::unsupported, "--cores " + kind + ": /sys/devices/system/cpu names neither capacity nor " +
                                         "frequency of the cores; give a mask such as f0");
  }
  std::vector<int> chosen;
  for (const Core& core : cores) {
    const bool little = speed(core, by_capacity) == low;
    if (low == high || little == (kind == "little")) chosen.push_back(core.number);
  }
  return chosen;
}

std::vector<int> of_mask(const std::vector<Core>& cores, const std::string& mask) {
  const std::string digits = mask.compare(0, 2, "0x") == 0 ? mask.substr(2) : mask;
  if (digits.empty() || digits.size() > static_cast<size_t>(kMaskDigits) ||
      digits.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos) {
    throw Error(Status::usage, "--cores " + mask + ": expected big, little, all, or a hexadecimal mask such as f0");
  }
  std::vector<int> chosen;
  for (const Core& core : cores) {
    const size_t digit = static_cast<size_t>(core.number) / 4;
    if (digit >= digits.size()) continue;
    const std::string nibble(1, digits[digits.size() - 1 - digit]);
    if ((std::strtoul(nibble.c_str(), nullptr, 16) >> (core.number % 4)) & 1u) chosen.push_back(core.number);
  }
  if (chosen.empty()) {
    throw Error(Status::unsupported,
                "--cores " + mask + ": none of these cores may be used by this process; see " + "phonograd-phone info");
  }
  return chosen;
}

}  // namespace

std::vector<Core> allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) {
    throw Error(Status::unsupported, std::string("the kernel does not say which cores may be used: ") +
                                         std::strerror(errno) + "; leave out --cores");
  }
  std::vector<Core> cores;
  for (int number = 0; number < CPU_SETSIZE; ++number) {
    if (!CPU_ISSET(static_cast<size_t>(number), &set)) continue;
    const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(number);
    cores.push_back({number, number_in(folder + "/cpufreq/cpuinfo_max_freq"), number_in(folder + "/cpu_capacity")});
  }
  return cores;
}

int use_cores(const std::string& which) {
  const std::vector<Core> cores = allowed_cores();
  if (which == "all") return static_cast<int>(cores.size());
  const std::vector<int> chosen = which == "big" || which == "little" ? of_kind(cores, which) : of_mask(cores, which);
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int number : chosen) CPU_SET(static_cast<size_t>(number), &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) {
    throw Error(Status::unsupported,
                "--cores " + which + ": the kernel refused: " + std::strerror(errno) + "; leave out --cores");
  }
  return static_cast<int>(chosen.size());
}

}  // namespace phonograd::phone
