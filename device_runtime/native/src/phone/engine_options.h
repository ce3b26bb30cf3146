// What the commands that run an engine share.
#pragma once

#include <vector>

#include "engine/running_engine.h"
#include "phone/arguments.h"

namespace phonograd::phone {

// The options --weights, --threads, --pin-threads, --cores and --kernels, and for `training` --precision.
std::vector<Option> engine_options(bool training);

// Move this process to the cores of --cores. Throws Error: usage, unsupported.
Cores move_to_cores(const Arguments& arguments);

// What they ask for; as for --threads, before it is limited to the cores. Throws Error(usage).
EngineOptions chosen_engine(const Arguments& arguments, const Cores& cores);

// Move to the chosen cores and load the artifacts, without an output sample. Throws what these throw.
RunningEngine start_engine(const Arguments& arguments);

}  // namespace phonograd::phone
