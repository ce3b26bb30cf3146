// Whole numbers from a discrete Gaussian, for noise that nobody but the phone knows (Kairouz, Liu, Steinke 2021).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/secret.h"

namespace phonograd {

constexpr double kMostNoise = 65536;  // standard deviation

// Draws x with a chance in proportion to exp(-x^2 / 2 sigma^2), by Walker's alias method: the table's weights are
// float64 numbers, correct to 2^-52 of each, and then exact; what is drawn differs from them by 2^-63 in all (total
// variation), and never lies beyond 9.5 sigma, where 2^-69 of the weight does. So d numbers cost a guarantee no more
// than d * 2^-50 of epsilon and d * 2^-62 of delta. Const methods are thread-safe.
class DiscreteGaussian {
 public:
  // sigma: above 0 and at most kMostNoise.
  explicit DiscreteGaussian(double sigma);

  // Add draws number [start, start + count) of a key's stream to values [count], modulo 2^32. start, count: multiples
  // of 4, or the last ones.
  void add(const Secret<32>& key, size_t start, size_t count, uint32_t* values) const;

 private:
  struct Column {
    uint64_t kept;  // out of 2^64: the chance of the column's own number
    int32_t own, other;
  };
  std::vector<Column> columns_;  // a power of two of them
};

}  // namespace phonograd
