// How many neighbours phones have, and how many of them it takes. FORMAT.md, "Masked rounds", neighbours.
#pragma once

#include <cstddef>

namespace phonograd {

constexpr size_t kEverybody = 50;     // the largest cohort in which all are neighbours
constexpr size_t kMostHolders = 255;  // a share's place is a byte, not 0

struct GraphRule {
  size_t chance = 0;     // a: of two phones being neighbours, out of 256
  size_t threshold = 0;  // t: shares that give a secret, and neighbours that each phone must keep
  size_t agree = 0;      // T: phones that must agree on a list
};

// So many of n phones.
size_t share_of(size_t n, double share);

// T of a cohort of n phones. Throws Error(usage) if too few of them may be left.
size_t agreeing(size_t n, double curious, double dropouts);

// The rule for a cohort of n phones. Throws Error(usage) for shares that no rule satisfies.
GraphRule graph_rule(size_t n, double curious, double dropouts);

}  // namespace phonograd
