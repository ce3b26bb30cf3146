#include "masked/graph.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "base/error.h"
#include "base/splitmix64.h"

namespace phonograd {
namespace {

constexpr double kSecrecy = 0x1p-40;  // chance that curious phones know some phone's secrets
constexpr double kLoss = 1e-6;        // chance that some phone's secrets can't be put together

// Draws without repetition from `all` things of which some are marked.
class Hypergeometric {
 public:
  Hypergeometric(size_t all, size_t marked) : all_(all), marked_(marked), log_factorial_(all + 1) {
    for (size_t i = 1; i <= all; ++i) log_factorial_[i] = log_factorial_[i - 1] + std::log(static_cast<double>(i));
  }

  // P(exactly `found` of `drawn` are marked).
  double chance(size_t drawn, size_t found) const {
    if (found > marked_ || found > drawn || drawn - found > all_ - marked_) return 0;
    return std::exp(choose(marked_, found) + choose(all_ - marked_, drawn - found) - choose(all_, drawn));
  }

  double at_least(size_t drawn, size_t least) const {
    double sum = 0;
    for (size_t found = drawn + 1; found-- > least;) sum += chance(drawn, found);
    return sum;
  }

 private:
  double choose(size_t n, size_t k) const { return log_factorial_[n] - log_factorial_[k] - log_factorial_[n - k]; }

  size_t all_, marked_;
  std::vector<double> log_factorial_;
};

[[noreturn]] void refuse(size_t n, const std::string& why) {
  throw Error(Status::usage, "a cohort of " + std::to_string(n) + " phones: " + why +
                                 "; lower the share of `curious` or of `dropouts`");
}

}  // namespace

GraphRule graph_rule(size_t n, double curious, double dropouts) {
  const double phones = static_cast<double>(n);
  const size_t c = static_cast<size_t>(curious * phones), d = static_cast<size_t>(dropouts * phones);
  GraphRule rule;
  rule.agree = (n + c) / 2 + 1;
  if (rule.agree > n - d)
    refuse(n, std::to_string(rule.agree) + " must agree, " + std::to_string(n - d) + " may be left");
  if (n <= kEverybody) {
    rule.holders = rule.peers = n - 1;
    rule.threshold = n - 1 > d ? n - 1 - d : 1;
    if (rule.threshold <= c) refuse(n, "those who may work with the server could put a phone's secrets together");
    return rule;
  }
  const Hypergeometric of_curious(n - 1, c), of_dead(n - 1, d);
  for (size_t k = 1; k <= std::min(kMostHolders, n - 1) && rule.holders == 0; ++k) {
    // The largest t for which fewer than t remain, that is more than k - t are dead, hardly ever.
    size_t t = 0;
    double fewer = 0;
    while (t < k && fewer + of_dead.chance(k, k - t) <= kLoss / phones) fewer += of_dead.chance(k, k - t++);
    if (t > 0 && of_curious.at_least(k, t) <= kSecrecy / phones) rule.holders = k, rule.threshold = t;
  }
  if (rule.holders == 0) refuse(n, "no number of holders is safe");
  const double honest = (1 - curious) * (1 - dropouts);
  const double edges = (40 * std::log(2.0) + std::log(phones)) / (honest - std::log1p(-honest));
  rule.peers = honest >= 1 ? 1 : std::min(rule.holders, static_cast<size_t>(std::ceil(edges)));
  return rule;
}

std::vector<size_t> holders_of(size_t self, size_t n, size_t holders, uint64_t seed) {
  std::vector<size_t> others(n);
  std::iota(others.begin(), others.end(), size_t{0});
  others.erase(others.begin() + static_cast<ptrdiff_t>(self));
  if (n <= kEverybody) return others;
  SplitMix64 random(seed);
  for (size_t place = 0; place < holders; ++place) {
    std::swap(others[place], others[place + random.below(others.size() - place)]);
  }
  others.resize(holders);
  return others;
}

}  // namespace phonograd
