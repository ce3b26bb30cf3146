// `phonograd-phone bench`: what a training step costs on this phone, without a text.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/splitmix64.h"
#include "phone/commands.h"
#include "phone/engine_options.h"

namespace phonograd::phone {
namespace {

constexpr int64_t kDefaultSteps = 20;  // an epoch over 20 KB of text
constexpr int64_t kWarmUp = 2;
// Small: random tokens teach nothing, and weights that run away would be timed as other numbers than a text's.
constexpr float kLearningRate = 1e-3f;

Syntax syntax() {
  Syntax syntax{"bench", "ARTIFACTS", "Seconds of training steps on random tokens.", {}};
  syntax.options = {{"--steps", "N", "Steps that are timed, after 2 that are not. [default: 20]"}};
  for (const Option& option : engine_options(true)) syntax.options.push_back(option);
  return syntax;
}

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const double place = share * static_cast<double>(values.size() - 1);
  return values[static_cast<size_t>(std::lround(place))];
}

int run(const Arguments& arguments) {
  const int64_t steps = arguments.whole("--steps", kDefaultSteps, 1, 1000000);
  const auto began = std::chrono::steady_clock::now();
  const Running running = start_engine(arguments, 0);
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
    if (!std::isfinite(loss)) throw Error(Status::training, "bench: the loss is not finite; give sound weights");
    if (step < 0) continue;
    seconds.push_back(taken);
    for (const PhaseTime& phase : engine.phase_times()) {
      std::vector<double>& times = phases[phase.phase];
      if (times.empty()) names.push_back(phase.phase);
      times.push_back(phase.seconds);
    }
  }
  JsonLine medians;
  for (const std::string& name : names) medians.real(name.c_str(), median(phases[name]));
  JsonLine line("bench");
  running.describe(line);
  line.whole("steps", steps).whole("tokens_per_step", static_cast<int64_t>(window)).real("load_seconds", load);
  line.reals("step_seconds", seconds).real("seconds_per_step_median", median(seconds));
  line.real("seconds_per_step_p10", quantile(seconds, 0.1)).real("seconds_per_step_p90", quantile(seconds, 0.9));
  line.real("tokens_per_s", static_cast<double>(window) / median(seconds)).object("phases", medians);
  line.whole("peak_rss_bytes", peak_rss_bytes()).print();
  return 0;
}

}  // namespace

Command bench_command() {
  return {syntax(), run};
}

}  // namespace phonograd::phone
