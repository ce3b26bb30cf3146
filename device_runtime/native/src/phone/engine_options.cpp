#include "phone/engine_options.h"

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "phone/cores.h"

namespace phonograd::phone {
namespace {

std::vector<int> numbers(const std::vector<Core>& cores) {
  std::vector<int> found;
  for (const Core& core : cores) found.push_back(core.number);
  return found;
}

}  // namespace

std::vector<Option> engine_options(bool training) {
  std::vector<Option> options = {
      {"--weights", "FILE",
       "Tensor file to start from (such as a later round's model). [default: the folder's weights]"},
      {"--threads", "N",
       "CPU threads, at most one a core; the result does not depend on their number. [default: one a core with "
       "--cores, else 2]"},
      {"--pin-threads", "", "Pin each thread to one core, the first to the fastest.", false, "--pin"},
      {"--cores", "WHICH", "Cores to run on: big, little, all, or a hexadecimal mask such as f0. [default: all]"},
      {"--kernels", "NAME", "Kernel set (see info). [default: the best for this CPU]"},
  };
  if (training) {
    options.push_back({"--precision", "NAME", "fp32, bf16 (if the CPU supports it) or bf16-emulated. [default: fp32]"});
  }
  return options;
}

void Running::describe(JsonLine& line) const {
  line.text("kernels", engine->kernels_name());
  line.text("precision", name_of(options.precision));
  line.integer("threads", options.threads).raw("pinned", options.pin_threads ? "true" : "false");
  line.integers("cores", cores).integers("allowed_cores", allowed_cores);
}

Running start_engine(const Arguments& arguments, uint64_t seed, const OutputSample& sample) {
  Running running;
  EngineOptions& options = running.options;
  const int64_t asked =
      arguments.integer("--threads", arguments.has("--cores") ? kMaxThreads : kDefaultThreads, 1, kMaxThreads);
  options.seed = seed;
  options.pin_threads = arguments.has("--pin-threads");
  options.kernels = arguments.text("--kernels");
  const std::vector<std::string> names(std::begin(kPrecisionNames), std::end(kPrecisionNames));
  const std::string precision = arguments.choice("--precision", names[0], names);
  const auto at = std::find(names.begin(), names.end(), precision) - names.begin();
  options.precision = static_cast<Precision>(at);
  const std::string which = arguments.text("--cores", "all");
  const std::vector<Core> allowed = allowed_cores(), chosen = chosen_cores(allowed, which);
  if (which != "all") run_on(chosen, which);
  // Waiting threads spin, so two on one core would slow each other down.
  options.threads = static_cast<int>(std::min(asked, static_cast<int64_t>(chosen.size())));
  running.allowed_cores = numbers(allowed);
  running.cores = numbers(chosen);
  if (options.pin_threads) {
    running.cores = numbers(fastest_first(chosen));
    running.cores.resize(static_cast<size_t>(options.threads));
  }
  running.engine = std::make_unique<Engine>(arguments.positional(), arguments.text("--weights"), options, sample);
  return running;
}

int64_t peak_rss_bytes() {
  std::FILE* file = std::fopen("/proc/self/status", "re");
  if (file == nullptr) return 0;
  char line[256];
  long long kilobytes = 0;
  while (std::fgets(line, sizeof line, file) != nullptr) {
    if (std::sscanf(line, "VmHWM: %lld kB", &kilobytes) == 1) break;
  }
  std::fclose(file);
  return kilobytes * 1024;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace phonograd::phone
