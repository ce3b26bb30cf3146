#include "phone/cores.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/error.h"

namespace phonograd::phone {
namespace {

constexpr int kMaskDigits = CPU_SETSIZE / 4;

std::vector<Core> of_kind(const std::vector<Core>& cores, const std::string& kind) {
  const std::vector<Core> big = big_cores(cores);
  if (big.empty()) {
    throw Error(Status::unsupported, "--cores " + kind + ": /sys/devices/system/cpu has neither capacity nor " +
                                         "frequency of the cores; give a mask such as f0");
  }
  if (kind == "big" || big.size() == cores.size()) return big;
  std::vector<Core> little;
  for (const Core& core : cores) {
    const auto same = [&core](const Core& other) { return other.number == core.number; };
    if (std::none_of(big.begin(), big.end(), same)) little.push_back(core);
  }
  return little;
}

std::vector<Core> of_mask(const std::vector<Core>& cores, const std::string& mask) {
  const std::string digits = mask.compare(0, 2, "0x") == 0 ? mask.substr(2) : mask;
  if (digits.empty() || digits.size() > static_cast<size_t>(kMaskDigits) ||
      digits.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos) {
    throw Error(Status::usage, "--cores " + mask + ": expected big, little, all, or a hexadecimal mask such as f0");
  }
  std::vector<Core> chosen;
  for (const Core& core : cores) {
    const size_t digit = static_cast<size_t>(core.number) / 4;
    if (digit >= digits.size()) continue;
    const std::string nibble(1, digits[digits.size() - 1 - digit]);
    if ((std::strtoul(nibble.c_str(), nullptr, 16) >> (core.number % 4)) & 1u) chosen.push_back(core);
  }
  if (chosen.empty()) {
    throw Error(Status::unsupported,
                "--cores " + mask + ": this process may use none of these cores; see phonograd-phone info");
  }
  return chosen;
}

}  // namespace

std::vector<Core> chosen_cores(const std::vector<Core>& cores, const std::string& which) {
  if (which == "all") return cores;
  return which == "big" || which == "little" ? of_kind(cores, which) : of_mask(cores, which);
}

void run_on(const std::vector<Core>& cores, const std::string& which) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const Core& core : cores) CPU_SET(static_cast<size_t>(core.number), &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) {
    throw Error(Status::unsupported,
                "--cores " + which + ": the kernel refused: " + std::strerror(errno) + "; leave out --cores");
  }
}

}  // namespace phonograd::phone
