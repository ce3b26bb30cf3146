// What the commands that run an engine share.
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

// Without --cores: two, as in Python's commands; even slow phones have two fast cores.
constexpr int64_t kDefaultThreads = 2;
constexpr int64_t kMaxThreads = 256;

// The options --weights, --threads, --pin-threads, --cores and --kernels, and for `training` --precision.
std::vector<Option> engine_options(bool training);

// An engine, its options, and core numbers: those that this process was allowed at its start, and those that its
// threads run on (in the threads' order if they are pinned).
struct Running {
  EngineOptions options;
  std::vector<int> allowed_cores, cores;
  std::unique_ptr<Engine> engine;

  // Adds kernels, precision, threads, and where they run.
  void describe(JsonLine& line) const;
};

// Move to the chosen cores and load the artifacts, with at most one thread a core. Throws what Engine's constructor
// throws, and Error(usage, unsupported) for invalid options.
Running start_engine(const Arguments& arguments, uint64_t seed, const OutputSample& sample = {});

// Adapts an engine to evaluation and suggestions. The engine must outlive this.
class EngineScorer : public Scorer {
 public:
  explicit EngineScorer(Engine& engine) : engine_(engine) {}
  void reset() override { engine_.reset(); }
  const float* logits(const int64_t* tokens, int64_t T, int64_t B) override { return engine_.logits(tokens, T, B); }

 private:
  Engine& engine_;
};

// The peak resident memory of this process so far (VmHWM); 0 if /proc does not have it.
int64_t peak_rss_bytes();

double median(std::vector<double> values);  // 0 if empty

}  // namespace phonograd::phone
