// Training on the phone: each epoch predicts every token of a stream once, window by window.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/engine.h"
#include "training/state.h"

namespace phonograd {

// One step that was just taken.
struct StepReport {
  int64_t step = 0;   // from 1
  int64_t steps = 0;  // of all epochs
  double loss = 0;    // nats a token, before the update
  double seconds = 0;
  int64_t tokens = 0;  // predicted, padding left out
};

// A loss of so many times that of the uniform guess, ln V or that of an output sample's words, is divergence.
constexpr double kDivergence = 10;

// What a caller hears of training; empty callbacks are not called.
struct EpochEvents {
  std::function<bool()> stop;                      // asked after each step and during rests: save, and end early
  std::function<void(int64_t, int64_t)> on_start;  // (steps done already, steps of all epochs)
  std::function<void(const StepReport&)> on_step;
  std::function<void(int64_t, size_t, double)> on_save;  // (steps done, bytes, seconds)
};

// How to train on a text.
struct EpochOptions {
  double learning_rate = 0;
  int64_t epochs = 1;              // each from zero recurrent states
  TrainingState* state = nullptr;  // resumed from, and saved to
  int64_t save_every = kSaveEvery;
  double duty = 1;  // share of the wall time that steps take, in (0, 1]; the rest of it is rests between them
  EpochEvents events = {};
};

// The result of training: losses and seconds of all steps, those before a resume included.
struct EpochReport {
  int64_t steps = 0;       // of all epochs
  int64_t resumed_at = 0;  // steps that an earlier process had done
  bool finished = false;   // false: stopped early
  Progress progress;
  double seconds = 0;       // of this process's steps and saves
  double rest_seconds = 0;  // of its rests
};

// Throws Error(text) if a stream of `tokens` does not fill one window.
void require_window(const Manifest& manifest, int64_t tokens);

// Train over a stream of ids [N], from zero recurrent states or from where the state is. An engine with a full batch
// takes one step, with the mean gradient of all windows: its losses are those of the windows, all with the same
// weights. Throws Error: text if the stream does not fill one window, training when a loss is not finite or diverges,
// and what the engine and the state throw.
EpochReport train_epoch(Engine& engine, const std::vector<int64_t>& stream, const EpochOptions& options);

}  // namespace phonograd
