#include "round/settings.h"

#include "base/error.h"
#include "base/files.h"
#include "formats/json.h"
#include "round/outputs.h"
#include "round/seeds.h"

namespace phonograd {
namespace {

void require(bool good, const std::string& message) {
  if (!good) throw Error(Status::usage, message);
}

void check_integer(const char* name, uint64_t value, uint64_t least, uint64_t most) {
  require(value >= least && value <= most, std::string("`") + name + "` " + std::to_string(value) +
                                               ": expected a whole number from " + std::to_string(least) + " to " +
                                               std::to_string(most));
}

void check_input(const RoundSettings& settings) {
  require(!(settings.user.given() && !settings.tokens.empty()), "`user` and `tokens` exclude each other");
  require(settings.user.given() || !settings.tokens.empty(), "give `user` or `tokens`");
  require(!settings.rehearsal.given() || settings.user.given(), "`rehearsal` needs `user`");
  for (const TextSource* source : {&settings.user, &settings.rehearsal}) {
    require(source->path.empty() || !source->bytes, "a text: a path and bytes exclude each other");
  }
  require(settings.user_share > 0 && settings.user_share <= 1,
          "`user_share` " + json::number(settings.user_share) + ": expected a number above 0 and at most 1");
}

void check_outputs(const RoundSettings& settings) {
  codec_named(settings.codec);
  require(settings.update.empty() || settings.update_descriptor < 0,
          "`update` and `update_descriptor` exclude each other");
  for (const std::string& path : {settings.out, settings.update}) {
    if (!path.empty()) require_writable(path);
  }
  if (settings.update_descriptor >= 0) DescriptorFile::require_writable(settings.update_descriptor);
}

}  // namespace

void check_settings(const RoundSettings& settings) {
  check_input(settings);
  require(settings.duty > 0 && settings.duty <= 1,
          "`duty` " + json::number(settings.duty) + ": expected a number above 0 and at most 1");
  constexpr auto kMost = static_cast<uint64_t>(kMaxCount);
  check_integer("epochs", static_cast<uint64_t>(settings.epochs), 1, kMaxEpochs);
  require(settings.steps == 0 || settings.steps == 1,
          "`steps` " + std::to_string(settings.steps) +
              ": expected 1, a single step with the gradient of the whole text; leave it out for one step a window");
  require(settings.steps == 0 || settings.epochs == 1,
          "`steps` 1 is a single pass: `epochs` 1 expected, found " + std::to_string(settings.epochs));
  check_integer("round", settings.round, 1, kMost);
  check_integer("save_every", static_cast<uint64_t>(settings.save_every), 1, INT64_MAX);
  check_integer("output_sample", static_cast<uint64_t>(settings.output_sample), 0, kMost);
  check_integer("seed", settings.seed.value_or(0), 0, kMost);
  require(!(settings.seed && !settings.phone.empty()), "`seed` and `phone` exclude each other");
  if (!settings.phone.empty()) check_phone_name(settings.phone);
  if (settings.learning_rate) {
    require(*settings.learning_rate > 0 && *settings.learning_rate <= kMaxRate,
            "`learning_rate` " + json::number(*settings.learning_rate) + ": expected a number above 0 and at most " +
                json::number(kMaxRate));
  }
  require(!settings.restart || !settings.state.empty(), "`restart` needs `state`");
  check_outputs(settings);
}

}  // namespace phonograd
