// `phonograd-phone train`: resumable training on a user's text, and the files it writes.
#include <sys/stat.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <optional>

#include "base/error.h"
#include "base/priority.h"
#include "phone/commands.h"
#include "phone/engine_options.h"
#include "phone/training_input.h"
#include "phone/training_outputs.h"
#include "phone/training_seed.h"
#include "training/trainer.h"
#include "update/update_file.h"

namespace phonograd::phone {
namespace {

constexpr double kMaxRate = 3.4e38;  // a float
constexpr int64_t kMaxEpochs = 1000000;
constexpr int kSignalled = 128;  // plus the signal's number: a shell's exit code for a process that a signal ended

volatile std::sig_atomic_t stop_signal = 0;  // the first signal received

extern "C" void note_signal(int number) {
  if (stop_signal == 0) stop_signal = number;
}

// From now on SIGTERM and SIGINT stop training after the current step.
void note_stop_signals() {
  struct sigaction action{};
  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
}

Syntax syntax() {
  Syntax syntax{"train", "ARTIFACTS", "Train on a user's text.", {}};
  syntax.options = {
      {"--user", "FILE", "The user's text, one message a line."},
      {"--tokens", "FILE", "Token stream (little-endian int32 ids) in place of --user."},
      {"--rehearsal", "FILE", "General text to draw rehearsal messages from."},
      {"--user-share", "L", "The user's share of the tokens, with --rehearsal. [default: 0.5]"},
      {"--output-sample", "N",
       "Train the softmax over the text's own words and about N others, drawn by chance. [default: over all]"},
      {"--sample-seed", "N", "Of that draw; nobody else may learn it. [default: random, kept in the state]"},
      {"--epochs", "N", "Passes over the text. [default: 1]"},
      {"--lr", "X", "Learning rate. [default: the artifacts']"},
      {"--phone", "NAME", "The phone's name at the server; the seed is derived from model, round and name."},
      {"--seed", "N", "Seed of the rehearsal draw, dropout and random codecs, in place of --phone. [default: random]"},
      {"--out", "FILE", "Write the trained weights here."},
      {"--update", "FILE", "Write the update for the server here."},
      {"--codec", "NAME", "Codec of --update: " + comma_separated(codec_names()) + ". [default: rows-f32]"},
      {"--codec-costs", "", "Report the size of the update with each codec, and the seconds to encode it."},
      {"--round", "N", "The server's round. [default: 1]"},
      {"--state", "DIR", "Folder to save resumable state in, and to resume from."},
      {"--save-every", "N", "Steps between saves. [default: " + std::to_string(kSaveEvery) + "]"},
      {"--restart", "", "Discard the saved state."},
      {"--duty", "SHARE",
       "Share of the time that steps take; below 1, rests between them keep the phone cooler. [default: 1]"},
      {"--nice", "N", "Lower the priority of all threads to this nice value, at most 19. [default: unchanged]"},
  };
  for (const Option& option : engine_options(true)) syntax.options.push_back(option);
  return syntax;
}

void check_combination(const Arguments& arguments) {
  arguments.exactly_one("--user", "--tokens");
  arguments.needs("--rehearsal", "--user");
  arguments.needs("--user-share", "--rehearsal");
  arguments.needs("--save-every", "--state");
  arguments.needs("--restart", "--state");
  arguments.needs("--sample-seed", "--output-sample");
  check_seed_options(arguments);
}

// If an output replaced the base weights and the run were then killed, it could not be resumed.
void check_base_kept(const std::string& base, const TrainingOutputs& outputs) {
  struct stat about{}, other{};
  for (const std::string& path : {outputs.weights, outputs.update}) {
    if (path.empty() || stat(path.c_str(), &other) != 0 || stat(base.c_str(), &about) != 0) continue;
    if (about.st_dev != other.st_dev || about.st_ino != other.st_ino) continue;
    throw Error(Status::usage, path + ": training starts from these weights; with --state, write to another file");
  }
}

JsonLine phases(const Engine& engine) {
  JsonLine line;
  for (const PhaseTime& phase : engine.phase_times()) line.number(phase.phase.c_str(), phase.seconds);
  return line;
}

// Fields of the job that the first event and the report share; the names are those of `phonograd train --json`.
void describe_job(const Running& running, const TrainingText& text, const EpochOptions& options, int64_t steps,
                  JsonLine& line) {
  const Manifest& manifest = running.engine->manifest();
  line.text("backend", "native");
  running.describe(line);
  line.integer("seed", static_cast<int64_t>(running.options.seed));
  line.integer("epochs", options.epochs).integer("steps", steps);
  line.integer("tokens", static_cast<int64_t>(text.stream.size()));
  line.integer("user_tokens", text.user_tokens).integer("general_tokens", text.general_tokens);
  line.number("user_share", text.user_share()).number("user_unknown_share", text.user_unknown_share);
  if (text.general_tokens > 0) {
    line.number("general_unknown_share", text.general_unknown_share);
  } else {
    line.raw("general_unknown_share", "null");
  }
  line.number("duty", options.duty).integer("nice", priority());
  line.number("learning_rate", options.learning_rate);
  if (manifest.clipped) {
    line.number("clip_norm", manifest.clip_norm);
  } else {
    line.raw("clip_norm", "null");
  }
  line.text("loss_reduction", manifest.loss_reduction);
  JsonLine output_layer;
  output_layer.text("kind", running.engine->output_sample().candidates.empty() ? "full" : "sampled");
  line.object("output_layer", output_layer.integer("words", running.engine->output_words()));
}

// Sets the callbacks that print events. `options` must outlive training.
void report_events(const Running& running, const TrainingText& text, std::chrono::steady_clock::time_point began,
                   EpochOptions& options) {
  const Engine& engine = *running.engine;
  options.on_start = [&running, &text, &options, began](int64_t done, int64_t steps) {
    JsonLine line("start");
    line.text("version", kVersion);
    describe_job(running, text, options, steps, line);
    line.integer("resumed_at", done);
    line.number("load_seconds", std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count())
        .print();
  };
  options.on_step = [&engine](const StepReport& step) {
    JsonLine line("step");
    line.integer("step", step.step)
        .integer("steps", step.steps)
        .number("loss", step.loss)
        .number("seconds", step.seconds);
    line.number("tokens_per_s", static_cast<double>(step.tokens) / step.seconds)
        .object("phases", phases(engine))
        .print();
  };
  options.on_save = [](int64_t step, size_t bytes, double seconds) {
    JsonLine line("saved");
    line.integer("step", step).integer("nbytes", static_cast<int64_t>(bytes)).number("seconds", seconds).print();
  };
}

int interrupted(const EpochReport& epoch, bool saved) {
  const int number = stop_signal;
  const auto done = static_cast<int64_t>(epoch.progress.losses.size());
  JsonLine line("interrupted");
  line.integer("signal", number)
      .integer("step", done)
      .integer("steps", epoch.steps)
      .raw("saved", saved ? "true" : "false");
  line.print();
  std::fprintf(stderr, "phonograd-phone: interrupted after step %lld of %lld; %s\n", static_cast<long long>(done),
               static_cast<long long>(epoch.steps),
               saved ? "the state is saved: run the same command to resume" : "nothing is saved without --state");
  return kSignalled + number;
}

int run(const Arguments& arguments) {
  const auto began = std::chrono::steady_clock::now();
  check_combination(arguments);
  const int64_t save_every = arguments.integer("--save-every", kSaveEvery, 1, INT64_MAX);
  const double duty = arguments.number("--duty", 1, 0, 1);
  if (arguments.has("--nice")) lower_priority(static_cast<int>(arguments.integer("--nice", 0, 0, kLeastPriority)));
  const TrainingOutputs outputs = training_outputs(arguments);
  note_stop_signals();
  std::optional<StateFolder> folder;
  if (arguments.has("--state")) folder.emplace(arguments.text("--state"));

  const Manifest manifest = read_manifest(arguments.positional());
  const uint64_t seed = training_seed(arguments, manifest, outputs.round, folder ? &*folder : nullptr);
  const SampleDraw draw = sample_draw(arguments, folder ? &*folder : nullptr);
  EpochOptions options;
  options.learning_rate = arguments.number("--lr", manifest.learning_rate, 0, kMaxRate);
  options.epochs = arguments.integer("--epochs", 1, 1, kMaxEpochs);
  options.save_every = save_every;
  options.duty = duty;
  options.stop = [] { return stop_signal != 0; };
  const TrainingText text = training_text(arguments, manifest, seed);
  const auto tokens = static_cast<int64_t>(text.stream.size());
  require_window(manifest, tokens);
  warn_of_unknown(arguments.text("--user", arguments.text("--tokens")), text.user_unknown_share);
  warn_of_unknown(arguments.text("--rehearsal"), text.general_unknown_share);
  const Running running = start_engine(arguments, seed, output_sample(manifest, text.stream, draw));
  Engine& engine = *running.engine;
  // Hashes the file that the engine has open; by the end another file may have its path.
  const std::string identity = folder || outputs.needs_identity() ? base_sha256(engine) : "";
  std::optional<TrainingState> state;
  if (folder) {
    if (arguments.has("--restart")) folder->discard();
    check_base_kept(engine.weights().path(), outputs);
    state.emplace(*folder, engine, running.options, identity, text.stream, options.learning_rate, draw);
    options.state = &*state;
  }

  report_events(running, text, began, options);
  const EpochReport epoch = train_epoch(engine, text.stream, options);
  if (!epoch.finished) return interrupted(epoch, state.has_value());

  engine.end_training();

  JsonLine report("report");
  describe_job(running, text, options, epoch.steps, report);
  const Progress& progress = epoch.progress;
  report.integer("resumed_at", epoch.resumed_at).numbers("losses", progress.losses);
  report.numbers("step_seconds", progress.step_seconds).number("seconds", epoch.seconds);
  report.number("rest_seconds", epoch.rest_seconds);
  report.number("seconds_per_step_median", median(progress.step_seconds));
  report.number("loss_first", progress.losses.front()).number("loss_last", progress.losses.back());
  write_outputs(outputs, engine, identity, tokens, seed, report);
  report.integer("peak_rss_bytes", peak_rss_bytes());
  // After the peak was read: a round does not encode with every codec.
  if (outputs.codec_costs) {
    report.list("codecs", codec_costs(engine, identity, tokens, seed));
  }
  report.print();
  // Last: after a kill before this, resuming writes the same files.
  if (folder) folder->discard();
  return 0;
}

}  // namespace

Command train_command() {
  return {syntax(), run};
}

}  // namespace phonograd::phone
