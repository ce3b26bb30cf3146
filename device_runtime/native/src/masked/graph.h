// Who holds whose shares and who masks with whom. FORMAT.md, "Masked rounds", neighbours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace phonograd {

constexpr size_t kEverybody = 50;     // the largest cohort in which all are neighbours
constexpr size_t kMostHolders = 255;  // a share's place is a byte, not 0

struct GraphRule {
  size_t holders = 0;    // k: phones that hold shares of a phone's secrets
  size_t peers = 0;      // m: the first of these, with which it masks
  size_t threshold = 0;  // t: shares that give a secret
  size_t agree = 0;      // T: phones that must agree on a list
};

// The rule for a cohort of n phones. Throws Error(usage) for shares for which there is none.
GraphRule graph_rule(size_t n, double curious, double dropouts);

// The holders of phone `self` of n, by their places in the cohort, in order. `seed`: of its draw; without use for
// cohorts in which all are neighbours.
std::vector<size_t> holders_of(size_t self, size_t n, size_t holders, uint64_t seed);

}  // namespace phonograd
