// Finding NaN and infinity.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace phonograd {

// Index of the first value that is NaN or infinite; `count` if all are finite.
inline size_t first_not_finite(const float* values, size_t count) {
  size_t at = 0;
  while (at < count && std::isfinite(values[at])) ++at;
  return at;
}

// The same where only the rows of these numbers, rising, of so many elements need a look; nullptr: all of them.
inline size_t first_not_finite(const float* values, size_t count, const std::vector<uint32_t>* rows, size_t width) {
  if (rows == nullptr) return first_not_finite(values, count);
  for (const uint32_t row : *rows) {
    const size_t at = row * width, found = first_not_finite(values + at, width);
    if (found < width) return at + found;
  }
  return count;
}

// "element 7 is nan, expected a finite number"
inline std::string not_finite(float value, size_t at) {
  const char* found = std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  return "element " + std::to_string(at) + " is " + found + ", expected a finite number";
}

inline std::string not_finite(const float* values, size_t at) {
  return not_finite(values[at], at);
}

}  // namespace phonograd
