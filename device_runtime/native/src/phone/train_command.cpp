// `phonograd-phone train`: resumable training on a user's text, and the files it writes.
#include <chrono>
#include <cstdio>

#include "base/error.h"
#include "base/priority.h"
#include "formats/phone_name.h"
#include "phone/commands.h"
#include "phone/engine_options.h"
#include "phone/print.h"
#include "phone/stopping.h"
#include "phonograd.h"
#include "round/input.h"
#include "round/round.h"
#include "round/seeds.h"

namespace phonograd::phone {
namespace {

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
      {"--steps", "1",
       "Take a single step, with the gradient of the whole text (FedSGD). [default: one a window of the text]"},
      {"--lr", "X", "Learning rate. [default: the artifacts']"},
      {"--phone", "NAME", "The phone's name at the server; the seed is derived from model, round and name."},
      {"--seed", "N", "Seed of the rehearsal draw, dropout and random codecs, in place of --phone. [default: random]"},
      {"--max-unknown", "SHARE",
       "Largest share of the user's words that the vocabulary may lack, for an update to be made. [default: 0.5]"},
      {"--out", "FILE", "Write the trained weights here."},
      {"--update", "FILE", "Write the update for the server here."},
      {"--codec", "NAME", "Codec of --update: " + comma_separated(codec_names()) + ". [default: rows-f32]"},
      {"--masked", "JSON", "Settings of a masked round: --update is a grid update, for `phonograd-phone mask`."},
      {"--run", "JSON", "`run` of the server's round of dp-ftrl: refused while this phone must rest."},
      {"--run-history", "FILE", "With it: the rounds that this phone took part in."},
      {"--codec-costs", "", "Report the size of the update with each codec, and the seconds to encode it."},
      {"--round", "N", "The server's round. [default: 1]"},
      {"--state", "DIR", "Folder to save resumable state in, and to resume from."},
      {"--save-every", "N", "Save after N steps, or 5 seconds. [default: " + std::to_string(kSaveEvery) + "]"},
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
  arguments.exclude("--seed", "--phone");
  arguments.exclude("--steps", "--epochs");
  arguments.exclude("--masked", "--codec");
  arguments.needs("--masked", "--update");
  arguments.needs("--run", "--run-history");
  arguments.needs("--run-history", "--run");
  arguments.needs("--run", "--update");
  if (arguments.has("--phone")) check_phone_name(arguments.text("--phone"));
}

RoundSettings settings_of(const Arguments& arguments) {
  RoundSettings settings;
  settings.folder = arguments.positional();
  settings.weights = arguments.text("--weights");
  settings.user.path = arguments.text("--user");
  settings.tokens = arguments.text("--tokens");
  settings.rehearsal.path = arguments.text("--rehearsal");
  settings.user_share = arguments.number("--user-share", settings.user_share, 0, 1);
  settings.epochs = arguments.integer("--epochs", settings.epochs, 1, kMaxEpochs);
  if (arguments.has("--steps")) settings.steps = arguments.integer("--steps", 1, 1, kMaxCount);
  if (arguments.has("--lr")) settings.learning_rate = arguments.number("--lr", 0, 0, kMaxRate);
  settings.output_sample = arguments.integer("--output-sample", settings.output_sample, 1, kMaxCount);
  const auto seed = [&](const char* name) -> std::optional<uint64_t> {
    if (!arguments.has(name)) return std::nullopt;
    return static_cast<uint64_t>(arguments.integer(name, 0, 0, kMaxCount));
  };
  settings.sample_seed = seed("--sample-seed");
  settings.seed = seed("--seed");
  settings.phone = arguments.text("--phone");
  settings.round = static_cast<uint64_t>(arguments.integer("--round", 1, 1, kMaxCount));
  settings.max_unknown = arguments.number("--max-unknown", settings.max_unknown, 0, 1);
  settings.out = arguments.text("--out");
  settings.update = arguments.text("--update");
  settings.codec = arguments.choice("--codec", settings.codec, codec_names());
  settings.masked = arguments.text("--masked");
  settings.run = arguments.text("--run");
  settings.run_history = arguments.text("--run-history");
  settings.codec_costs = arguments.has("--codec-costs");
  settings.state = arguments.text("--state");
  settings.save_every = arguments.integer("--save-every", settings.save_every, 1, INT64_MAX);
  settings.restart = arguments.has("--restart");
  settings.duty = arguments.number("--duty", settings.duty, 0, 1);
  settings.cores = move_to_cores(arguments);
  settings.engine = chosen_engine(arguments, *settings.cores);
  return settings;
}

JsonLine phases(const Engine& engine) {
  JsonLine line;
  for (const PhaseTime& phase : engine.phase_times()) line.number(phase.phase.c_str(), phase.seconds);
  return line;
}

// Events are printed; a signal stops training.
EpochEvents events_of(const Round& round, std::chrono::steady_clock::time_point began) {
  EpochEvents events;
  events.stop = [] { return stop_signal() != 0; };
  events.on_start = [&round, began](int64_t done, int64_t steps) {
    JsonLine line("start");
    line.text("version", PG_VERSION);
    round.describe(steps, line);
    line.integer("resumed_at", done);
    const std::chrono::duration<double> load = std::chrono::steady_clock::now() - began;
    print(line.number("load_seconds", load.count()));
  };
  events.on_step = [&round](const StepReport& step) {
    JsonLine line("step");
    line.integer("step", step.step)
        .integer("steps", step.steps)
        .number("loss", step.loss)
        .number("seconds", step.seconds);
    line.number("tokens_per_s", static_cast<double>(step.tokens) / step.seconds);
    print(line.object("phases", phases(round.engine())));
  };
  events.on_save = [](int64_t step, size_t bytes, double seconds) {
    JsonLine line("saved");
    print(line.integer("step", step).integer("nbytes", static_cast<int64_t>(bytes)).number("seconds", seconds));
  };
  return events;
}

int report_interruption(const EpochReport& epoch, bool saved) {
  const int number = stop_signal();
  const auto done = static_cast<int64_t>(epoch.progress.losses.size());
  JsonLine line("interrupted");
  line.integer("signal", number).integer("step", done).integer("steps", epoch.steps);
  print(line.raw("saved", saved ? "true" : "false"));
  std::fprintf(stderr, "phonograd-phone: interrupted after step %lld of %lld; %s\n", static_cast<long long>(done),
               static_cast<long long>(epoch.steps),
               saved ? "the state is saved: run the same command to resume" : "nothing is saved without --state");
  return kSignalled + number;
}

int run(const Arguments& arguments) {
  const auto began = std::chrono::steady_clock::now();
  check_combination(arguments);
  const RoundSettings settings = settings_of(arguments);
  if (arguments.has("--nice")) lower_priority(static_cast<int>(arguments.integer("--nice", 0, 0, kLeastPriority)));
  note_stop_signals();  // training stops after the current step
  Round round(settings);
  warn_of_unknown(user_text_name(settings), round.text().user_unknown_share);
  warn_of_invalid(user_text_name(settings), round.text().user_invalid_share);
  warn_of_unknown(settings.rehearsal.path, round.text().general_unknown_share);
  if (!round.train(events_of(round, began))) return report_interruption(round.epoch(), !settings.state.empty());
  print(round.report());
  round.discard_state();
  return 0;
}

}  // namespace

Command train_command() {
  return {syntax(), run};
}

}  // namespace phonograd::phone
