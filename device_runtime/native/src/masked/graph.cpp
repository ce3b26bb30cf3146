#include "masked/graph.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"

namespace phonograd {
namespace {

constexpr double kSecrecy = 0x1p-40;  // chance that curious phones know some phone's secrets, or that a part is cut off
constexpr double kLoss = 1e-6;        // chance that some phone's secrets can't be put together
constexpr size_t kAlways = 256;

// How many of `count` come, each with chance a / 256: the chances of 0, 1, ..., count.
std::vector<double> binomial(size_t count, size_t a) {
  if (a == kAlways) {
    std::vector<double> all(count + 1);
    all.back() = 1;
    return all;
  }
  const double p = static_cast<double>(a) / static_cast<double>(kAlways);
  std::vector<double> chances(count + 1);
  double log_choose = 0;
  for (size_t k = 0; k <= count; ++k) {
    const double k_of = static_cast<double>(k), rest = static_cast<double>(count - k);
    chances[k] = std::exp(log_choose + k_of * std::log(p) + rest * std::log1p(-p));
    if (k < count) log_choose += std::log(rest) - std::log(k_of + 1);
  }
  return chances;
}

// A bound of the log of the chance that `least` or more of `count` come, each with chance p (Chernoff).
double log_many(size_t count, double p, size_t least) {
  const double share = static_cast<double>(least) / static_cast<double>(count);
  if (share <= p) return 0;
  const double rest = share < 1 ? (1 - share) * std::log((1 - share) / (1 - p)) : 0;
  return -static_cast<double>(count) * (share * std::log(share / p) + rest);
}

// A bound of the chance that the honest phones of some list fall into two parts that no mask joins, so that the server
// learns the sum of each. It chooses the list once it knows the neighbours: of the h = n - c honest phones k are one
// part, each with t neighbours among the others of it and the c; T - c - k are the other one. `known`: chances of how
// many of the c are a phone's neighbours.
double part_chance(size_t n, const GraphRule& rule, const std::vector<double>& known) {
  const size_t c = known.size() - 1, honest = n - c;
  const double apart = std::log1p(-static_cast<double>(rule.chance) / static_cast<double>(kAlways));
  std::vector<double> enough(known);  // chances of so many or more
  for (size_t k = c; k-- > 0;) enough[k] += enough[k + 1];
  double chance = 0, log_choose = 0;
  for (size_t k = 1; 2 * k <= honest; ++k) {
    log_choose += std::log(static_cast<double>(honest - k + 1)) - std::log(static_cast<double>(k));
    const size_t needed = rule.threshold + 1 - std::min(rule.threshold + 1, k), least = rule.agree - c;
    const size_t others = std::max(k, least - std::min(least, k));
    if (needed > c || k + others > honest) continue;
    const double parts = static_cast<double>(k);
    const double log_chance =
        log_choose + parts * std::log(enough[needed]) + log_many(honest - k, std::exp(parts * apart), others);
    chance += std::exp(std::min(log_chance, 0.0));
  }
  return chance;
}

[[noreturn]] void refuse(size_t n, const std::string& why) {
  throw Error(Status::usage, "a cohort of " + std::to_string(n) + " phones: " + why +
                                 "; lower the share of `curious` or of `dropouts`");
}

}  // namespace

size_t share_of(size_t n, double share) {
  // 0.29 of 200 are 58, which the product of the two falls short of.
  return static_cast<size_t>(share * static_cast<double>(n) + 1e-9);
}

size_t agreeing(size_t n, double curious, double dropouts) {
  const size_t agree = (n + share_of(n, curious)) / 2 + 1, left = n - share_of(n, dropouts);
  if (agree > left) refuse(n, std::to_string(agree) + " must agree, " + std::to_string(left) + " may be left");
  return agree;
}

GraphRule graph_rule(size_t n, double curious, double dropouts) {
  const double phones = static_cast<double>(n);
  const size_t c = share_of(n, curious), d = share_of(n, dropouts);
  GraphRule rule;
  rule.agree = agreeing(n, curious, dropouts);
  for (size_t a = n <= kEverybody ? kAlways : 1; a <= kAlways; ++a) {
    const std::vector<double> left = binomial(n - 1 - d, a), known = binomial(c, a);
    size_t t = 0;
    for (double fewer = left[0]; t + 1 < left.size() && fewer <= kLoss / phones; fewer += left[t]) ++t;
    double enough = 0;
    for (size_t k = known.size(); k-- > t;) enough += known[k];
    if (t == 0 || enough > kSecrecy / phones) continue;
    const double p = static_cast<double>(a) / kAlways, mean = (phones - 1) * p;
    if (mean + 6 * std::sqrt(mean * (1 - p)) > kMostHolders) break;
    rule.chance = a, rule.threshold = t;
    if (a == kAlways || part_chance(n, rule, known) <= kSecrecy) return rule;
  }
  refuse(n, "no number of neighbours is safe");
}

}  // namespace phonograd
