// Values that left the finite numbers.
#pragma once

#include <cmath>
#include <cstddef>
#include <string>

namespace phonograd {

// Number of the first value that is NaN or infinite, `count` if none is.
inline size_t first_not_finite(const float* values, size_t count) {
  size_t at = 0;
  while (at < count && std::isfinite(values[at])) ++at;
  return at;
}

// "element 7 is nan, expected a finite number"
inline std::string not_finite(const float* values, size_t at) {
  const char* found = std::isnan(values[at]) ? "nan" : values[at] > 0 ? "inf" : "-inf";
  return "element " + std::to_string(at) + " is " + found + ", expected a finite number";
}

}  // namespace phonograd
