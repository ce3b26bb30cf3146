// pg_round: a phone's part in a round.
#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "capi/border.h"
#include "capi/handles.h"
#include "capi/sized.h"
#include "formats/sha256.h"
#include "formats/utf8.h"
#include "phonograd.h"
#include "round/round.h"

using namespace phonograd;

struct pg_round {
  pg_round(OpenFolder opened, const RoundSettings& settings)
      : folder(std::move(opened)), round(settings), kernels(round.engine().kernels_name()) {}

  OpenFolder folder;
  Round round;
  const std::string kernels;
  std::atomic<bool> cancelled{false};
  std::string job;
  std::string report;  // "" until it is finished
  int32_t (*stop)(void*) = nullptr;
  void* stop_context = nullptr;
};

namespace {

static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may cancel");

constexpr size_t kFirstOptions = offsetof(pg_round_options, update_descriptor) + sizeof(int32_t);

std::string text_or_none(const char* text) {
  return text == nullptr ? "" : text;
}

TextSource source_of(const pg_text& text) {
  TextSource source;
  source.path = text_or_none(text.path);
  if (text.bytes != nullptr) source.bytes.emplace(text.bytes, text.length);
  return source;
}

// A field that is not zero replaces the default.
template <typename Field, typename Setting>
void set(Field given, Setting& setting) {
  if (given != Field{}) setting = static_cast<Setting>(given);
}

EngineOptions engine_of(const pg_round_options& options) {
  pg_options same{};
  same.size = sizeof same;
  same.threads = options.threads;
  same.pin_threads = options.pin_threads;
  same.precision = options.precision;
  same.kernels = options.kernels;
  same.teacher = options.teacher;
  return engine_options_of(&same);
}

RoundSettings settings_of(const pg_round_options& options, const OpenFolder& folder) {
  RoundSettings settings;
  settings.folder = folder.path();
  settings.weights = text_or_none(options.weights);
  settings.engine = engine_of(options);
  settings.weights_sha256 = text_or_none(options.weights_sha256);
  border::require(
      settings.weights_sha256.empty() || is_sha256(settings.weights_sha256),
      "weights_sha256: 64 lower-case hexadecimal digits expected, found " + quote_text(settings.weights_sha256));
  settings.user = source_of(options.user);
  border::require(options.stream_tokens >= 0 && (options.stream_tokens == 0 || options.stream != nullptr),
                  "stream: ids and their number expected");
  settings.stream.assign(options.stream, options.stream + options.stream_tokens);
  settings.rehearsal = source_of(options.rehearsal);
  set(options.user_share, settings.user_share);
  set(options.duty, settings.duty);
  set(options.epochs, settings.epochs);
  settings.steps = options.steps;
  if (options.learning_rate != 0) settings.learning_rate = options.learning_rate;
  settings.output_sample = options.output_sample;
  set(options.round, settings.round);
  settings.phone = text_or_none(options.phone);
  if (options.seed != nullptr) settings.seed = *options.seed;
  if (options.sample_seed != nullptr) settings.sample_seed = *options.sample_seed;
  settings.out = text_or_none(options.out);
  settings.update = text_or_none(options.update);
  set(options.update_descriptor, settings.update_descriptor);
  if (options.codec != nullptr) settings.codec = options.codec;
  settings.masked = text_or_none(options.masked);
  settings.run = text_or_none(options.run);
  settings.run_history = text_or_none(options.run_history);
  settings.state = text_or_none(options.state);
  set(options.save_every, settings.save_every);
  settings.restart = options.restart != 0;
  set(options.max_unknown, settings.max_unknown);
  return settings;
}

EpochEvents events_of(pg_round& round, pg_on_progress on_progress, void* context, int64_t& saved) {
  EpochEvents events;
  events.stop = [&round] {
    if (round.stop != nullptr && round.stop(round.stop_context) != 0) round.cancelled.store(true);
    return round.cancelled.load();
  };
  if (on_progress == nullptr) return events;
  events.on_start = [&saved](int64_t done, int64_t) { saved = done; };
  events.on_save = [&saved](int64_t done, size_t, double) { saved = done; };
  events.on_step = [on_progress, context, &saved](const StepReport& step) {
    pg_progress progress{};
    progress.size = sizeof progress;
    progress.step = step.step;
    progress.steps = step.steps;
    progress.tokens = step.tokens;
    progress.saved = saved;
    progress.loss = step.loss;
    progress.seconds = step.seconds;
    on_progress(context, &progress);
  };
  return events;
}

void require_finished(const pg_round& round, const std::string& reason) {
  border::require(!round.report.empty(), "round: not finished, so " + reason + "; call pg_round_train first");
}

}  // namespace

extern "C" {

pg_status pg_round_open(const pg_round_options* options, pg_round** round) {
  return border::run_guarded([&] {
    border::require(round != nullptr, "round: NULL");
    *round = nullptr;
    const pg_round_options known = border::options_of(options, kFirstOptions, "pg_round_options");
    OpenFolder folder = folder_of(known.folder, known.folder_descriptor);
    const RoundSettings settings = settings_of(known, folder);
    *round = new pg_round(std::move(folder), settings);
    (*round)->stop = known.stop;
    (*round)->stop_context = known.stop_context;
  });
}

pg_status pg_round_job(pg_round* round, const char** json) {
  return border::run_guarded([&] {
    border::require(round != nullptr && json != nullptr, "round or json: NULL");
    JsonLine line("job");
    round->round.describe(round->round.steps(), line);
    line.integer("steps_done", static_cast<int64_t>(round->round.epoch().progress.losses.size()));
    round->job = line.str();
    *json = round->job.c_str();
  });
}

pg_status pg_round_model(const pg_round* round, pg_model* model) {
  return border::run_guarded([&] {
    border::require(round != nullptr, "round: NULL");
    describe_model(round->round.engine(), round->round.engine_options(), round->kernels, model);
  });
}

pg_status pg_round_train(pg_round* round, pg_on_progress on_progress, void* context, int32_t* finished) {
  return border::run_guarded([&] {
    border::require(round != nullptr && finished != nullptr, "round or finished: NULL");
    *finished = 0;
    int64_t saved = 0;
    if (!round->round.train(events_of(*round, on_progress, context, saved))) return;
    round->report = round->round.report().str();
    *finished = 1;
  });
}

pg_status pg_round_cancel(pg_round* round) {
  if (round == nullptr) return border::run_guarded([] { border::require(false, "round: NULL"); });
  round->cancelled.store(true);
  return PG_OK;
}

pg_status pg_round_report(const pg_round* round, const char** json) {
  return border::run_guarded([&] {
    border::require(round != nullptr && json != nullptr, "round or json: NULL");
    require_finished(*round, "there is no report");
    *json = round->report.c_str();
  });
}

pg_status pg_round_discard_state(pg_round* round) {
  return border::run_guarded([&] {
    border::require(round != nullptr, "round: NULL");
    require_finished(*round, "its state is needed to resume it");
    round->round.discard_state();
  });
}

void pg_round_close(pg_round* round) {
  delete round;
}

}  // extern "C"
