// The settings of masked rounds, as the server states them. FORMAT.md, "Masked rounds".
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

namespace phonograd {

constexpr int64_t kGridRows = 4096;  // elements of a block, as of rotations

struct MaskedSettings {
  int64_t bits = 0;        // of a code
  int64_t support = 0;     // one of so many rotated elements is sent
  double clip = 0;         // the largest L2 norm of a delta
  int64_t weight_cap = 0;  // the largest weight of a phone
  int64_t cohort = 0, min_cohort = 0;
  double curious = 0, dropouts = 0;  // shares of the cohort
  int64_t steps = 0;                 // 1: a single step with the gradient of the whole text; 0: one a window
  double noise = 0;                  // standard deviation of what each phone adds to an element, over the clip; 0: none

  // The largest code, L.
  int64_t largest() const { return (int64_t{1} << (bits - 1)) - 1; }
  // How far a phone of weight_cap can move the decoded sum over weight_cap, in L2, if it clips: its delta, all of it in
  // the elements that are sent, and the rounding of each of them.
  double sensitivity() const;
  // Phones of the smallest cohort whose update is in the sum for sure and who do not work with the server.
  int64_t fewest_honest() const;
  // The weight of a phone that trained on so many tokens.
  int64_t weight_of(int64_t tokens) const { return std::clamp<int64_t>(tokens, 1, weight_cap); }
};

// Throws Error(usage) unless this is how the settings let phones train: a phone whose delta is of many steps would
// stand out in a sum of others' single ones.
void require_steps(const MaskedSettings& settings, bool one_step);

// Parse a server's text. Throws Error(usage) for a field that is missing, unknown or out of range, and for shares for
// which a cohort has no rule.
MaskedSettings masked_settings(const std::string& text);

// How the deltas of a model's weights become whole numbers, and what their sums may be.
struct GridShape {
  // The grid for `parameters` weights; 0: counts the codes' and weights' bits alone, the fewest of any model. Throws
  // Error(usage) for sums of more than 31 bits.
  GridShape(const MaskedSettings& given, int64_t parameters);

  int64_t codes() const { return columns * sent; }  // N
  int64_t values() const { return codes() + 1; }    // and the weight
  // The largest magnitude of a sum over `phones` of this weight together.
  int64_t largest_sum(int64_t phones, int64_t weight) const;

  MaskedSettings settings;
  int64_t columns;  // n: blocks of kGridRows elements
  int64_t sent;     // elements of a block that are sent
  double step;      // of the grid
  double noise;     // standard deviation of a phone's, in steps
  int width;        // w, the bits of a masked value
};

}  // namespace phonograd
