#include "phone/engine_options.h"

#include <algorithm>
#include <iterator>

#include "engine/faster_precision.h"
#include "phone/cores.h"
#include "phone/print.h"

namespace phonograd::phone {
namespace {

constexpr const char* kFaster = "auto";

// The precision that is faster on these cores; prints both rates.
Precision measure_faster_precision(const EngineOptions& options, const Cores& cores) {
  const ProductRates rates = product_rates(place_threads(options, cores).options);
  const Precision precision = faster_precision(rates);
  JsonLine line("precision");
  line.text("precision", name_of(precision)).number("fp32_gflops", rates.fp32).number("bf16_gflops", rates.bf16);
  print(line);
  return precision;
}

}  // namespace

std::vector<Option> engine_options(bool training) {
  std::vector<Option> options = {
      {"--weights", "FILE",
       "Tensor file to start from (such as a later round's model). [default: the folder's weights]"},
      {"--threads", "N",
       "CPU threads, 1 to " + std::to_string(kMaxThreads) +
           ", at most one a core; the result does not depend on their number. [default: one a core with --cores, "
           "else 2]"},
      {"--pin-threads", "", "Pin each thread to one core, the first to the fastest."},
      {"--cores", "WHICH", "Cores to run on: big, little, all, or a hexadecimal mask such as f0. [default: all]"},
      {"--kernels", "NAME", "Kernel set (see info). [default: the best for this CPU]"},
  };
  if (training) {
    options.push_back(
        {"--precision", "NAME",
         "fp32, bf16 (if the CPU supports it), bf16-emulated, or auto: bf16 if it is faster here. [default: fp32]"});
  }
  return options;
}

EngineOptions chosen_engine(const Arguments& arguments, const Cores& cores) {
  EngineOptions options;
  const int64_t absent = arguments.has("--cores") ? kMaxThreads : options.threads;
  options.threads = static_cast<int>(arguments.integer("--threads", absent, 1, kMaxThreads));
  options.pin_threads = arguments.has("--pin-threads");
  options.kernels = arguments.text("--kernels");
  std::vector<std::string> names(std::begin(kPrecisionNames), std::end(kPrecisionNames));
  names.push_back(kFaster);
  const std::string precision = arguments.choice("--precision", names[0], names);
  const auto at = std::find(names.begin(), names.end(), precision) - names.begin();
  options.precision = precision == kFaster ? measure_faster_precision(options, cores) : static_cast<Precision>(at);
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
  const Cores cores = move_to_cores(arguments);
  const EngineOptions options = chosen_engine(arguments, cores);
  return start_engine(arguments.positional(), arguments.text("--weights"), options, cores);
}

}  // namespace phonograd::phone
