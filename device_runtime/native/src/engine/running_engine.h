// An engine, and the cores that it runs on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/cpu_cores.h"
#include "engine/engine.h"
#include "formats/json_line.h"

namespace phonograd {

constexpr int kMaxThreads = 256;  // that can be asked for

// `allowed`: the cores that the process might use when it began; `chosen`: those of them that the calling thread may
// use now.
struct Cores {
  std::vector<Core> allowed, chosen;
};

// All that the calling thread may use. Throws Error(unsupported) if the kernel does not report them.
Cores all_cores();

// An engine, the options it runs with, and core numbers: those that this process was allowed at its start, and those
// that the engine's threads run on (in the threads' order if they are pinned).
struct RunningEngine {
  EngineOptions options;
  std::vector<int> allowed_cores, cores;
  std::unique_ptr<Engine> engine;

  // Adds kernels, precision ("": the options'), threads, and where they run.
  void describe(JsonLine& line, const std::string& precision = "") const;
};

// At most one thread a chosen core; `engine` stays empty.
RunningEngine place_threads(EngineOptions options, const Cores& cores);

// Load the artifacts, with at most one thread a chosen core. Throws what Engine's constructor throws.
RunningEngine start_engine(const std::string& folder, const std::string& weights, EngineOptions options,
                           const Cores& cores, const OutputSample& sample = {});

}  // namespace phonograd
