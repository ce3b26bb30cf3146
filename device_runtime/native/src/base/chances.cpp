#include "base/chances.h"

#include <algorithm>

namespace phonograd {

std::vector<double> chances_of(const std::vector<double>& weights, std::vector<uint32_t> items, size_t count) {
  std::stable_sort(items.begin(), items.end(), [&](uint32_t a, uint32_t b) { return weights[a] > weights[b]; });
  std::vector<double> rest(items.size());  // of this weight and all smaller ones
  double sum = 0;
  for (size_t i = items.size(); i > 0; --i) rest[i - 1] = sum += weights[items[i - 1]];
  size_t sure = 0;
  while (sure < count && !(weights[items[sure]] * static_cast<double>(count - sure) < rest[sure])) ++sure;
  std::vector<double> chances(weights.size());
  for (size_t i = 0; i < sure; ++i) chances[items[i]] = 1;
  if (sure == count) return chances;
  const double factor = static_cast<double>(count - sure) / rest[sure];
  for (size_t i = sure; i < items.size(); ++i) chances[items[i]] = weights[items[i]] * factor;
  return chances;
}

}  // namespace phonograd
