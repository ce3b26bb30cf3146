// The CPU's cores as the kernel describes them, and running on some of them only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace phonograd::phone {

struct Core {
  int number = 0;
  int64_t max_khz = 0;   // 0: /sys does not say
  int64_t capacity = 0;  // of the fastest core's 1024; 0: /sys does not say
};

// The cores this process may run on, by number. Throws Error(unsupported) if the kernel refuses to say.
std::vector<Core> allowed_cores();

// Keep this process, and the threads it will start, on some of its cores: "all"; "big": all but the slowest kind;
// "little": the slowest kind; else a mask in hexadecimal, bit i for core i. Where all cores are of one kind they are
// both big and little. Returns how many cores are left. Throws Error: usage for a malformed mask, unsupported where
// /sys does not tell kinds apart or no core of the mask may be used.
int use_cores(const std::string& which);

}  // namespace phonograd::phone
