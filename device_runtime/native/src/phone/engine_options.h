// What the commands that run an engine have in common.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "phone/arguments.h"
#include "phone/json_line.h"
#include "text/evaluation.h"

namespace phonograd::phone {

// Without --cores: two, as Python's commands, what the slowest phones still have of fast cores.
constexpr int64_t kDefaultThreads = 2;
constexpr int64_t kMaxThreads = 256;

// --weights, --threads, --pin-threads, --cores, --kernels, --precision, for a command's syntax; `training` has all of
// them, evaluation those without --precision.
std::vector<Option> engine_options(bool training);

// An engine, the options it was made with, and the numbers of cores: those that this process was allowed when it began,
// and those that its threads run on, in the order of the threads where each is kept on one.
struct Running {
  EngineOptions options;
  std::vector<int> allowed_cores, cores;
  std::unique_ptr<Engine> engine;

  // Adds kernels, precision, threads, and where they run.
  void describe(JsonLine& line) const;
};

// Move to the chosen cores and load the artifacts; at most one thread for each of those cores. Throws what Engine's
// constructor throws, and Error(usage, unsupported) for options that can't be.
Running start_engine(const Arguments& arguments, uint64_t seed, const OutputSample& sample = {});

// An engine as evaluation and suggestions ask it. The engine must outlive this.
class EngineScorer : public Scorer {
 public:
  explicit EngineScorer(Engine& engine) : engine_(engine) {}
  void reset() override { engine_.reset(); }
  const float* logits(const int64_t* tokens, int64_t T, int64_t B) override { return engine_.logits(tokens, T, B); }

 private:
  Engine& engine_;
};

// The most memory this process has held resident so far: VmHWM. 0 where /proc does not say.
int64_t peak_rss_bytes();

double median(std::vector<double> values);  // 0 of none

}  // namespace phonograd::phone
