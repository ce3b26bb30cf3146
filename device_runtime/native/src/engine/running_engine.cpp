#include "engine/running_engine.h"

#include <algorithm>
#include <utility>

#include "kernels/kernel_set.h"

namespace phonograd {
namespace {

std::vector<int> numbers(const std::vector<Core>& cores) {
  std::vector<int> found;
  for (const Core& core : cores) found.push_back(core.number);
  return found;
}

}  // namespace

Cores all_cores() {
  const std::vector<Core> allowed = allowed_cores();
  return {allowed, allowed};
}

void RunningEngine::describe(JsonLine& line, const std::string& precision) const {
  line.text("kernels", kernel_set(options.kernels.c_str()).name);
  line.text("precision", precision.empty() ? name_of(options.precision) : precision);
  line.integer("threads", options.threads).raw("pinned", options.pin_threads ? "true" : "false");
  line.integers("cores", cores).integers("allowed_cores", allowed_cores);
}

RunningEngine place_threads(EngineOptions options, const Cores& cores) {
  RunningEngine running;
  // Waiting threads spin, so two on one core would slow each other down.
  options.threads = std::min(options.threads, static_cast<int>(cores.chosen.size()));
  running.options = options;
  running.allowed_cores = numbers(cores.allowed);
  running.cores = numbers(cores.chosen);
  if (options.pin_threads) {
    running.cores = numbers(fastest_first(cores.chosen));
    running.cores.resize(static_cast<size_t>(options.threads));
  }
  return running;
}

RunningEngine start_engine(const std::string& folder, const std::string& weights, EngineOptions options,
                           const Cores& cores, const OutputSample& sample) {
  RunningEngine running = place_threads(std::move(options), cores);
  running.engine = std::make_unique<Engine>(folder, weights, running.options, sample);
  return running;
}

}  // namespace phonograd
