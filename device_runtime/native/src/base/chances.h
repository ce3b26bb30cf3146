// Chances in proportion to a weight, as top-rows draws rows and an output sample words. FORMAT.md, "Updates", top-rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace phonograd {

// Chances whose sum is `count`, of these items: 1 for those of the largest weights, for the others in proportion to
// theirs. `items` are more than `count` numbers of `weights`, rising, whose weights are finite and above 0. The result
// is as long as `weights`; what is no item has chance 0. Thread-safe.
std::vector<double> chances_of(const std::vector<double>& weights, std::vector<uint32_t> items, size_t count);

}  // namespace phonograd
