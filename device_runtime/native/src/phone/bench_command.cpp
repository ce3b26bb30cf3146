// `phonograd-phone bench`: times training steps on this phone; needs no text.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/median.h"
#include "base/peak_memory.h"
#include "base/splitmix64.h"
#include "phone/commands.h"
#include "phone/engine_options.h"
#include "phone/print.h"

namespace phonograd::phone {
namespace {

constexpr int64_t kDefaultSteps = 20;  // an epoch over 20 KB of text
constexpr int64_t kWarmUp = 2;
// Small, so that training on random tokens does not diverge: huge weights could take another time than usual ones.
constexpr float kLearningRate = 1e-3f;

Syntax syntax() {
  Syntax syntax{"bench", "ARTIFACTS", "Time training steps on random tokens.", {}};
  syntax.options = {{"--steps", "N", "Steps to time, after 2 warm-up steps. [default: 20]"}};
  for (const Option& option : engine_options(true)) syntax.options.push_back(option);
  return syntax;
}

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const double place = share * static_cast<double>(values.size() - 1);
  return values[static_cast<size_t>(std::lround(place))];
}

int run(const Arguments& arguments) {
  const int64_t steps = arguments.integer("--steps", kDefaultSteps, 1, 1000000);
  const auto began = std::chrono::steady_clock::now();
  const RunningEngine running = start_engine(arguments);
  Engine& engine = *running.engine;
  const double load = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  const Manifest& manifest = engine.manifest();
  const auto window = static_cast<size_t>(manifest.minibatch * manifest.bptt);
  std::vector<int64_t> tokens(window), targets(window);  // [T,B]
  SplitMix64 random(1);
  std::vector<double> seconds;
  std::vector<std::string> names;  // phases, in the order of the plan
  std::map<std::string, std::vector<double>> phases;
  engine.reset();
  for (int64_t step = -kWarmUp; step < steps; ++step) {
    for (int64_t& token : tokens)
      token = static_cast<int64_t>(random.below(static_cast<uint64_t>(manifest.vocabulary)));
    for (int64_t& target : targets) {
      target = static_cast<int64_t>(random.below(static_cast<uint64_t>(manifest.vocabulary)));
    }
    const auto step_began = std::chrono::steady_clock::now();
    const float loss = engine.step(tokens.data(), targets.data(), kLearningRate);
    const double taken = std::chrono::duration<double>(std::chrono::steady_clock::now() - step_began).count();
    if (!std::isfinite(loss)) throw Error(Status::training, "bench: the loss is not finite; give other weights");
    if (step < 0) continue;
    seconds.push_back(taken);
    for (const PhaseTime& phase : engine.phase_times()) {
      std::vector<double>& times = phases[phase.phase];
      if (times.empty()) names.push_back(phase.phase);
      times.push_back(phase.seconds);
    }
  }
  JsonLine medians;
  for (const std::string& name : names) medians.number(name.c_str(), median(phases[name]));
  JsonLine line("bench");
  running.describe(line);
  line.integer("steps", steps).integer("tokens_per_step", static_cast<int64_t>(window)).number("load_seconds", load);
  line.numbers("step_seconds", seconds).number("seconds_per_step_median", median(seconds));
  line.number("seconds_per_step_p10", quantile(seconds, 0.1)).number("seconds_per_step_p90", quantile(seconds, 0.9));
  line.number("tokens_per_s", static_cast<double>(window) / median(seconds)).object("phases", medians);
  print(line.integer("peak_rss_bytes", peak_rss_bytes()));
  return 0;
}

}  // namespace

Command bench_command() {
  return {syntax(), run};
}

}  // namespace phonograd::phone
