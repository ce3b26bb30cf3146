#include "training/trainer.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>

#include "formats/json.h"
#include "text/windows.h"
#include "training/rest.h"

namespace phonograd {
namespace {

// However long steps and rests are, no more than this and one step are lost to a kill.
constexpr double kSaveSeconds = 5;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point began) {
  return std::chrono::duration<double>(Clock::now() - began).count();
}

// Six digits, for people.
std::string brief(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", number);
  return text;
}

void require_sound(double loss, int64_t step, int64_t words, double learning_rate) {
  const double most = kDivergence * std::log(static_cast<double>(words));
  if (loss <= most) return;  // false for NaN too
  throw Error(Status::training,
              "step " + std::to_string(step) + ": loss is " + brief(loss) + " nats a token, expected " + brief(most) +
                  " at most (ten times a uniform guess); training diverged: lower the learning rate (" +
                  json::number(learning_rate) + ") or export with stronger clipping");
}

}  // namespace

void require_window(const Manifest& manifest, int64_t tokens) {
  const int64_t window = manifest.minibatch * manifest.bptt;
  if (tokens >= window) return;
  throw Error(Status::text, "training text: " + std::to_string(window) + " tokens expected (one window: minibatch " +
                                std::to_string(manifest.minibatch) + " x BPTT " + std::to_string(manifest.bptt) +
                                "), found " + std::to_string(tokens) + "; give more text");
}

EpochReport train_epoch(Engine& engine, const std::vector<int64_t>& stream, const EpochOptions& options) {
  const Manifest& manifest = engine.manifest();
  const EpochEvents& events = options.events;
  require_window(manifest, static_cast<int64_t>(stream.size()));
  const Windows windows(stream, manifest.minibatch, manifest.bptt);
  const auto window_tokens = static_cast<size_t>(manifest.minibatch * manifest.bptt);
  const auto rate = static_cast<float>(options.learning_rate);
  // In a full batch each window adds its part of the mean.
  const float window_rate = engine.full_batch() ? rate / static_cast<float>(windows.count()) : rate;
  std::vector<int64_t> tokens(window_tokens), targets(window_tokens);  // [T,B]

  EpochReport report;
  report.steps = options.epochs * windows.count();
  engine.reset();
  Progress& progress = report.progress;
  if (options.state != nullptr) progress = options.state->resume();
  int64_t done = static_cast<int64_t>(progress.losses.size());
  if (done > report.steps)
    throw Error(Status::state, "training state: more steps saved than the text has; discard it with `restart`");
  report.resumed_at = done;
  int64_t saved = done;
  if (events.on_start) events.on_start(done, report.steps);

  const Clock::time_point began = Clock::now();
  Clock::time_point last_saved = began;
  const auto save = [&] {
    const Clock::time_point save_began = Clock::now();
    const size_t bytes = options.state->save(progress);
    saved = done;
    last_saved = Clock::now();
    if (events.on_save) events.on_save(done, bytes, seconds_since(save_began));
  };
  const auto is_late = [&](double pause) { return seconds_since(last_saved) + pause >= kSaveSeconds; };
  double busy = 0;  // seconds of the step before
  while (done < report.steps) {
    // Before the next step, so not after the last one: the outputs follow at once, and a kill in between costs few
    // steps.
    const double pause = rest_after(busy, options.duty);
    if (options.state != nullptr && done > saved && (done - saved >= options.save_every || is_late(pause))) save();
    report.rest_seconds += rest(pause, events.stop);
    if (events.stop && events.stop()) {
      if (options.state != nullptr && done > saved) save();
      report.seconds = seconds_since(began) - report.rest_seconds;
      return report;
    }
    const int64_t window = done % windows.count();
    if (window == 0) engine.reset();
    const int64_t predictions = windows.fill(window, tokens.data(), targets.data());
    const Clock::time_point step_began = Clock::now();
    const float raw = engine.step(tokens.data(), targets.data(), window_rate);
    const double seconds = seconds_since(step_began);
    busy = seconds;
    double loss = static_cast<double>(raw);
    if (manifest.loss_reduction == "sum_over_time") {
      loss *= static_cast<double>(manifest.minibatch) / static_cast<double>(predictions);
    }
    ++done;
    require_sound(loss, done, engine.output_words(), options.learning_rate);
    progress.losses.push_back(loss);
    progress.step_seconds.push_back(seconds);
    if (events.on_step) events.on_step({done, report.steps, loss, seconds, predictions});
  }
  if (engine.full_batch()) engine.finish_full_batch(rate);
  report.finished = true;
  report.seconds = seconds_since(began) - report.rest_seconds;
  return report;
}

}  // namespace phonograd
