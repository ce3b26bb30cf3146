// Running on some of the CPU's cores only.
#pragma once

#include <string>
#include <vector>

#include "base/cpu_cores.h"

namespace phonograd::phone {

// The cores of `cores` that `which` means: "all"; "big": those not much slower than the fastest (see big_ones);
// "little": the others, or all where there are none; else a mask in hexadecimal, bit i for core i. Throws Error: usage
// for a malformed mask, unsupported where /sys does not tell kinds apart or no core of the mask is among `cores`.
std::vector<Core> chosen_cores(const std::vector<Core>& cores, const std::string& which);

// Keep this process, and the threads it will start, on these of its cores. Throws Error(unsupported) if the kernel
// refuses; `which` names the choice in its message.
void keep_to(const std::vector<Core>& cores, const std::string& which);

}  // namespace phonograd::phone
