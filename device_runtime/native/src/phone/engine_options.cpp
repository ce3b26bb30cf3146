#include "phone/engine_options.h"

#include <algorithm>
#include <iterator>

#include "phone/cores.h"

namespace phonograd::phone {

std::vector<Option> engine_options(bool training) {
  std::vector<Option> options = {
      {"--weights", "FILE",
       "Tensor file to start from (such as a later round's model). [default: the folder's weights]"},
      {"--threads", "N",
       "CPU threads, at most one a core; the result does not depend on their number. [default: one a core with "
       "--cores, else 2]"},
      {"--pin-threads", "", "Pin each thread to one core, the first to the fastest."},
      {"--cores", "WHICH", "Cores to run on: big, little, all, or a hexadecimal mask such as f0. [default: all]"},
      {"--kernels", "NAME", "Kernel set (see info). [default: the best for this CPU]"},
  };
  if (training) {
    options.push_back({"--precision", "NAME", "fp32, bf16 (if the CPU supports it) or bf16-emulated. [default: fp32]"});
  }
  return options;
}

EngineOptions chosen_engine(const Arguments& arguments) {
  EngineOptions options;
  const int64_t absent = arguments.has("--cores") ? kMaxThreads : options.threads;
  options.threads = static_cast<int>(arguments.integer("--threads", absent, 1, kMaxThreads));
  options.pin_threads = arguments.has("--pin-threads");
  options.kernels = arguments.text("--kernels");
  const std::vector<std::string> names(std::begin(kPrecisionNames), std::end(kPrecisionNames));
  const std::string precision = arguments.choice("--precision", names[0], names);
  const auto at = std::find(names.begin(), names.end(), precision) - names.begin();
  options.precision = static_cast<Precision>(at);
  return options;
}

Cores move_to_cores(const Arguments& arguments) {
  const std::string which = arguments.text("--cores", "all");
  Cores cores = all_cores();
  cores.chosen = chosen_cores(cores.allowed, which);
  if (which != "all") run_on(cores.chosen, which);
  return cores;
}

RunningEngine start_engine(const Arguments& arguments) {
  const EngineOptions options = chosen_engine(arguments);
  const Cores cores = move_to_cores(arguments);
  return start_engine(arguments.positional(), arguments.text("--weights"), options, cores);
}

}  // namespace phonograd::phone
