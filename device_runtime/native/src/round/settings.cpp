#include "round/settings.h"

#include <cmath>

#include "base/error.h"
#include "base/files.h"
#include "formats/json.h"
#include "formats/phone_name.h"
#include "masked/settings.h"
#include "round/outputs.h"
#include "round/seeds.h"

namespace phonograd {
namespace {

void require(bool good, const std::string& message) {
  if (!good) throw Error(Status::usage, message);
}

template <typename Number>
void check_integer(const char* name, Number value, Number least, Number most) {
  require(value >= least && value <= most, std::string("`") + name + "` " + std::to_string(value) +
                                               ": expected a whole number from " + std::to_string(least) + " to " +
                                               std::to_string(most));
}

// Above 0. JSON has no word for what is no number.
void check_number(const char* name, double value, double most) {
  const std::string found = std::isfinite(value) ? json::number(value) : std::isnan(value) ? "NaN" : "infinity";
  require(value > 0 && value <= most,
          std::string("`") + name + "` " + found + ": expected a number above 0 and at most " + json::number(most));
}

void check_input(const RoundSettings& settings) {
  const int given = settings.user.is_given() + !settings.tokens.empty() + !settings.stream.empty();
  require(given > 0, "`user`: no text; give the path of a file, or bytes");
  require(given == 1, "`user`, `tokens` and `stream` exclude each other");
  require(!settings.rehearsal.is_given() || settings.user.is_given(), "`rehearsal` needs `user`");
  for (const TextSource* source : {&settings.user, &settings.rehearsal}) {
    require(source->path.empty() || !source->bytes, "a text: a path and bytes exclude each other");
  }
  check_number("user_share", settings.user_share, 1);
  check_number("max_unknown", settings.max_unknown, 1);
}

void check_outputs(const RoundSettings& settings) {
  codec_named(settings.codec);
  if (!settings.masked.empty()) require_steps(masked_settings(settings.masked), settings.steps == 1);
  require(settings.run.empty() == settings.run_history.empty(), "`run` and `run_history` go together");
  require(settings.run.empty() || writes_update(settings), "`run` needs an update");
  require(settings.update.empty() || settings.update_descriptor < 0,
          "`update` and `update_descriptor` exclude each other");
  if (settings.update_descriptor >= 0) DescriptorFile::require_writable(settings.update_descriptor);
}

}  // namespace

bool writes_update(const RoundSettings& settings) {
  return !settings.update.empty() || settings.update_descriptor >= 0;
}

void check_settings(const RoundSettings& settings) {
  check_input(settings);
  check_number("duty", settings.duty, 1);
  constexpr auto kMost = static_cast<uint64_t>(kMaxCount);
  check_integer<int64_t>("epochs", settings.epochs, 1, kMaxEpochs);
  require(settings.steps == 0 || settings.steps == 1,
          "`steps` " + std::to_string(settings.steps) +
              ": expected 1, a single step with the gradient of the whole text; leave it out for one step a window");
  require(settings.steps == 0 || settings.epochs == 1,
          "`steps` 1 is a single pass: `epochs` 1 expected, found " + std::to_string(settings.epochs));
  check_integer<uint64_t>("round", settings.round, 1, kMost);
  check_integer<int64_t>("save_every", settings.save_every, 1, INT64_MAX);
  check_integer<int64_t>("output_sample", settings.output_sample, 0, kMaxCount);
  check_integer<uint64_t>("seed", settings.seed.value_or(0), 0, kMost);
  require(!(settings.seed && !settings.phone.empty()), "`seed` and `phone` exclude each other");
  if (!settings.phone.empty()) check_phone_name(settings.phone);
  if (settings.learning_rate) check_number("learning_rate", *settings.learning_rate, kMaxRate);
  require(!settings.restart || !settings.state.empty(), "`restart` needs `state`");
  require(settings.engine.teacher.empty() || settings.state.empty(),
          "`teacher` and `state` exclude each other: a state does not say whose it is");
  check_outputs(settings);
}

}  // namespace phonograd
