#include "masked/settings.h"

#include <cmath>
#include <set>

#include "base/error.h"
#include "formats/json.h"
#include "masked/discrete_gaussian.h"
#include "masked/graph.h"

namespace phonograd {
namespace {

constexpr int64_t kFewest = 3, kMost = 2048;  // phones of a cohort
constexpr int64_t kLargestWeight = int64_t{1} << 20;
constexpr int kWidest = 31;    // bits of a masked value
constexpr double kSpread = 6;  // the grid's end, in standard deviations of an element of a delta of norm C
constexpr double kLargestClip = 1e9;
constexpr double kLeastCurious = 0.1;  // the server states the share, so phones have a least one
constexpr double kNoiseReach = 10;     // standard deviations of the summed noise, which it never exceeds

void require(bool good, const std::string& message) {
  if (!good) throw Error(Status::usage, "settings of the masked round: " + message);
}

}  // namespace

double MaskedSettings::sensitivity() const {
  const auto sent = static_cast<double>(support);
  return sent * clip * (1 + kSpread / (static_cast<double>(largest()) * std::sqrt(sent)));
}

int64_t MaskedSettings::fewest_honest() const {
  const auto phones = static_cast<size_t>(min_cohort);
  return static_cast<int64_t>(agreeing(phones, curious, dropouts) - share_of(phones, curious));
}

GridShape::GridShape(const MaskedSettings& given, int64_t parameters)
    : settings(given), columns((parameters + kGridRows - 1) / kGridRows), sent(kGridRows / given.support) {
  const double elements = static_cast<double>(kGridRows) * static_cast<double>(columns);
  step = kSpread * settings.clip / (std::sqrt(elements) * static_cast<double>(settings.largest()));
  noise = settings.noise * settings.clip / step;
  require(noise <= kMostNoise, "`noise` of " + json::number(noise) + " steps of the grid, at most " +
                                   json::number(kMostNoise) + " expected; lower `bits`");
  const int64_t different = 2 * largest_sum(settings.cohort, settings.cohort * settings.weight_cap) + 1;  // sums
  width = 0;
  while ((int64_t{1} << width) < different) ++width;
  require(width <= kWidest, "sums of " + std::to_string(width) + " bits, at most " + std::to_string(kWidest) +
                                " expected; lower `bits`, `weight_cap` or `cohort`");
}

int64_t GridShape::largest_sum(int64_t phones, int64_t weight) const {
  const double of_noise = kNoiseReach * noise * std::sqrt(static_cast<double>(phones));
  return weight * settings.largest() + static_cast<int64_t>(std::ceil(of_noise));
}

void require_steps(const MaskedSettings& settings, bool one_step) {
  require(one_step == (settings.steps == 1), settings.steps == 1 ? "`steps` 1 expected: its phones take a single step"
                                                                 : "no `steps` expected: its phones take all steps");
}

MaskedSettings masked_settings(const std::string& text) {
  const json::Value value = json::parse(text, Status::usage, "settings of the masked round");
  require(value.as<json::Object>() != nullptr, "an object expected, found " + value.text());
  std::set<std::string> known;
  const auto field = [&](const char* name) {
    known.insert(name);
    require(value.find(name) != nullptr, std::string("`") + name + "` is missing");
    return *value.find(name);
  };
  const auto expect = [&](bool good, const char* name, const std::string& expected) {
    require(good, std::string("`") + name + "` " + value.find(name)->text() + ": expected " + expected);
  };
  const auto number = [&](const char* name, double least, double most) {
    double found = 0;
    expect(field(name).number(&found) && found >= least && found <= most, name,
           "a number from " + json::number(least) + " to " + json::number(most));
    return found;
  };
  const auto whole = [&](const char* name, int64_t least, int64_t most) {
    const json::Value given = field(name);
    const int64_t* found = given.as<int64_t>();
    expect(found != nullptr && *found >= least && *found <= most, name,
           "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
    return *found;
  };
  MaskedSettings settings;
  settings.bits = whole("bits", 4, 16);
  expect(settings.bits == 4 || settings.bits == 8 || settings.bits == 16, "bits", "4, 8 or 16");
  settings.support = whole("support", 1, 64);
  expect(settings.support == 1 || settings.support == 4 || settings.support == 16 || settings.support == 64, "support",
         "1, 4, 16 or 64");
  settings.clip = number("clip", 1e-9, kLargestClip);
  settings.weight_cap = whole("weight_cap", 1, kLargestWeight);
  settings.cohort = whole("cohort", kFewest, kMost);
  settings.min_cohort = whole("min_cohort", kFewest, settings.cohort);
  settings.curious = number("curious", kLeastCurious, 0.5);
  settings.dropouts = number("dropouts", 0, 0.5);
  settings.steps = whole("steps", 0, 1);
  settings.noise = number("noise", 0, kLargestClip);
  require(settings.noise == 0 || settings.weight_cap == 1, "`noise` needs `weight_cap` 1: it does not hide weights");
  for (const json::Member& member : *value.as<json::Object>()) {
    require(known.count(member.key) != 0, "unknown `" + member.key + "`; update phonograd");
  }
  const auto fewest = static_cast<size_t>(settings.min_cohort), most = static_cast<size_t>(settings.cohort);
  for (const size_t phones : {fewest, most}) graph_rule(phones, settings.curious, settings.dropouts);
  for (size_t phones = fewest; phones < most; ++phones) agreeing(phones, settings.curious, settings.dropouts);
  return settings;
}

}  // namespace phonograd
