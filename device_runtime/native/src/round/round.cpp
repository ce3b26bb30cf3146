#include "round/round.h"

#include "base/error.h"
#include "base/median.h"
#include "base/peak_memory.h"
#include "base/priority.h"
#include "round/input.h"
#include "round/outputs.h"
#include "round/seeds.h"
#include "text/windows.h"

namespace phonograd {
namespace {

const RoundSettings& valid_settings(const RoundSettings& settings) {
  check_settings(settings);
  return settings;
}

Manifest manifest_of(const RoundSettings& settings) {
  Manifest manifest = read_manifest(settings.folder);
  require_outputs(settings, manifest);
  return manifest;
}

std::optional<RunHistory> history_of(const RoundSettings& settings) {
  if (settings.run.empty()) return std::nullopt;
  return RunHistory(settings.run, settings.run_history);
}

// A teacher's words are the student's and perhaps more, which are drawn too.
Manifest manifest_to_draw_from(const RoundSettings& settings, const Manifest& student) {
  return settings.engine.teacher.empty() ? student : read_manifest(settings.engine.teacher);
}

RunningEngine start_engine(const RoundSettings& settings, uint64_t seed, const OutputSample& sample) {
  EngineOptions options = settings.engine;
  options.seed = seed;
  options.full_batch = settings.steps == 1;
  return start_engine(settings.folder, settings.weights, options, settings.cores ? *settings.cores : all_cores(),
                      sample);
}

}  // namespace

Round::Round(const RoundSettings& settings)
    : settings_(valid_settings(settings)),
      manifest_(manifest_of(settings)),
      history_(history_of(settings)),
      folder_(settings.state.empty() ? nullptr : std::make_unique<StateFolder>(settings.state)),
      seed_(training_seed(settings, manifest_, folder_.get())),
      draw_(sample_draw(settings, folder_.get())),
      learning_rate_(settings.learning_rate.value_or(manifest_.learning_rate)),
      text_(training_text(settings, manifest_, seed_)),
      running_(start_engine(settings, seed_,
                            output_sample(manifest_to_draw_from(settings, manifest_), text_.stream, draw_))),
      // Hashes the file that the engine has open; by the end another file may have its path.
      identity_(!settings.weights_sha256.empty() ? settings.weights_sha256
                : needs_identity(settings)       ? base_sha256(engine())
                                                 : "") {
  if (folder_ == nullptr) return;
  if (settings.restart) folder_->discard();
  state_.emplace(*folder_, *running_.engine, running_.options, identity_, text_.stream, learning_rate_, draw_);
}

int64_t Round::steps() const {
  return settings_.epochs * Windows(text_.stream, manifest_.minibatch, manifest_.bptt).count();
}

bool Round::train(const EpochEvents& events) {
  if (trained_) throw Error(Status::usage, "round: trained already; open it again");
  trained_ = true;
  EpochOptions options;
  options.learning_rate = learning_rate_;
  options.epochs = settings_.epochs;
  options.state = state_ ? &*state_ : nullptr;
  options.save_every = settings_.save_every;
  options.duty = settings_.duty;
  options.events = events;
  epoch_ = train_epoch(*running_.engine, text_.stream, options);
  if (epoch_.finished) write();
  return epoch_.finished;
}

void Round::describe(int64_t steps, JsonLine& line) const {
  line.text("backend", "native");
  running_.describe(line);
  line.integer("seed", static_cast<int64_t>(seed_));
  line.integer("epochs", settings_.epochs).integer("steps", steps);
  line.integer("windows_per_step", engine().full_batch() ? steps : 1);
  line.integer("tokens", static_cast<int64_t>(text_.stream.size()));
  line.integer("user_tokens", text_.user_tokens).integer("general_tokens", text_.general_tokens);
  line.number("user_share", text_.user_share()).number("user_unknown_share", text_.user_unknown_share);
  line.number("user_invalid_share", text_.user_invalid_share);
  if (text_.general_tokens > 0) {
    line.number("general_unknown_share", text_.general_unknown_share);
  } else {
    line.raw("general_unknown_share", "null");
  }
  line.number("duty", settings_.duty).integer("nice", priority());
  line.number("learning_rate", learning_rate_);
  if (manifest_.clipped) {
    line.number("clip_norm", manifest_.clip_norm);
  } else {
    line.raw("clip_norm", "null");
  }
  line.text("loss_reduction", manifest_.loss_reduction);
  JsonLine output_layer;
  output_layer.text("kind", engine().output_sample().candidates.empty() ? "full" : "sampled");
  line.object("output_layer", output_layer.integer("words", engine().output_words()));
}

void Round::write() {
  running_.engine->end_training();
  report_ = JsonLine("report");
  describe(epoch_.steps, report_);
  const Progress& progress = epoch_.progress;
  report_.integer("resumed_at", epoch_.resumed_at).numbers("losses", progress.losses);
  report_.numbers("step_seconds", progress.step_seconds).number("seconds", epoch_.seconds);
  report_.number("rest_seconds", epoch_.rest_seconds);
  report_.number("seconds_per_step_median", median(progress.step_seconds));
  report_.number("loss_first", progress.losses.front()).number("loss_last", progress.losses.back());
  const auto tokens = static_cast<int64_t>(text_.stream.size());
  if (history_) history_->note();
  write_outputs(settings_, engine(), identity_, tokens, seed_, report_);
  report_.integer("peak_rss_bytes", peak_rss_bytes());
  // After the peak was read: a round does not encode with every codec.
  if (settings_.codec_costs) report_.list("codecs", codec_costs(engine(), identity_, tokens, seed_));
}

void Round::discard_state() {
  if (folder_ != nullptr) folder_->discard();
}

}  // namespace phonograd
