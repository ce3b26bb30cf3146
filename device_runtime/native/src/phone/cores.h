// Choosing the CPU cores to run on.
#pragma once

#include <string>
#include <vector>

#include "base/cpu_cores.h"

namespace phonograd::phone {

// Selects from `cores`. `which`: "all"; "big": those not much slower than the fastest (see big_cores); "little": the
// others, or all if all are big; else a hexadecimal mask, bit i for core i. Throws Error: usage for a malformed mask;
// unsupported if /sys does not tell big from little, or no core of the mask is in `cores`.
std::vector<Core> chosen_cores(const std::vector<Core>& cores, const std::string& which);

// Restrict this process, and the threads it will start, to these cores. Throws Error(unsupported) if the kernel
// refuses; `which` names the choice in its message.
void run_on(const std::vector<Core>& cores, const std::string& which);

}  // namespace phonograd::phone
