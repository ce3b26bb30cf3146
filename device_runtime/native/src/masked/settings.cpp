#include "masked/settings.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
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
constexpr double kNoiseReach = 10;  // standard deviations of the summed noise, which it never exceeds

void require(bool good, const std::string& message) {
  if (!good) throw Error(Status::usage, "settings of the masked round: " + message);
}

// Takes the fields of an object, each once.
class Fields {
 public:
  explicit Fields(const json::Value& value) : value_(value) {
    require(value.as<json::Object>() != nullptr, "an object expected, found " + value.text());
  }

  int64_t whole(const char* name, int64_t least, int64_t most) {
    const int64_t* found = taken(name).as<int64_t>();
    require(found != nullptr && *found >= least && *found <= most,
            wrong(name, "a whole number from " + std::to_string(least) + " to " + std::to_string(most)));
    return *found;
  }

  int64_t one_of(const char* name, std::initializer_list<int64_t> allowed) {
    const int64_t* found = taken(name).as<int64_t>();
    std::string list;
    for (const int64_t one : allowed) list += (list.empty() ? "" : ", ") + std::to_string(one);
    require(found != nullptr && std::find(allowed.begin(), allowed.end(), *found) != allowed.end(),
            wrong(name, "one of " + list));
    return *found;
  }

  double number(const char* name, double least, double most) {
    double found = 0;
    require(taken(name).number(&found) && found >= least && found <= most,
            wrong(name, "a number from " + json::number(least) + " to " + json::number(most)));
    return found;
  }

  void finish() const {
    for (const json::Member& member : *value_.as<json::Object>()) {
      require(taken_.count(member.key) != 0, "unknown `" + member.key + "`; update phonograd");
    }
  }

 private:
  const json::Value& taken(const char* name) {
    const json::Value* found = value_.find(name);
    require(found != nullptr, std::string("`") + name + "` is missing");
    taken_.insert(name);
    return *found;
  }

  std::string wrong(const char* name, const std::string& expected) const {
    return std::string("`") + name + "` " + value_.find(name)->text() + ": expected " + expected;
  }

  const json::Value& value_;
  std::set<std::string> taken_;
};

}  // namespace

double MaskedSettings::sensitivity() const {
  const auto sent = static_cast<double>(support);
  return sent * clip * (1 + kSpread / (static_cast<double>(largest()) * std::sqrt(sent)));
}

int64_t MaskedSettings::fewest_honest() const {
  const auto phones = static_cast<size_t>(min_cohort);
  return static_cast<int64_t>(agreeing(phones, curious, dropouts) - share_of(phones, curious));
}

int64_t MaskedSettings::weight_of(int64_t tokens) const {
  return std::clamp<int64_t>(tokens, 1, weight_cap);
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

MaskedSettings masked_settings(const std::string& text) {
  const json::Value value = json::parse(text, Status::usage, "settings of the masked round");
  Fields fields(value);
  MaskedSettings settings;
  settings.bits = fields.one_of("bits", {4, 8, 16});
  settings.support = fields.one_of("support", {1, 4, 16, 64});
  settings.clip = fields.number("clip", 1e-9, kLargestClip);
  settings.weight_cap = fields.whole("weight_cap", 1, kLargestWeight);
  settings.cohort = fields.whole("cohort", kFewest, kMost);
  settings.min_cohort = fields.whole("min_cohort", kFewest, settings.cohort);
  settings.curious = fields.number("curious", 0, 0.5);
  settings.dropouts = fields.number("dropouts", 0, 0.5);
  settings.noise = fields.number("noise", 0, kLargestClip);
  require(settings.noise == 0 || settings.weight_cap == 1, "`noise` needs `weight_cap` 1: it does not hide weights");
  fields.finish();
  const auto fewest = static_cast<size_t>(settings.min_cohort), most = static_cast<size_t>(settings.cohort);
  for (const size_t phones : {fewest, most}) graph_rule(phones, settings.curious, settings.dropouts);
  for (size_t phones = fewest; phones < most; ++phones) agreeing(phones, settings.curious, settings.dropouts);
  return settings;
}

}  // namespace phonograd
