#include "text/output_sample.h"

#include <algorithm>
#include <cmath>

#include "base/chances.h"
#include "base/random_words.h"
#include "text/vocabulary.h"

namespace phonograd {
namespace {

constexpr double kLn2 = 0.6931471805599453, kSqrtHalf = 0.7071067811865476;
constexpr int kLastTerm = 23;  // of atanh's series, for numbers of at most 0.172: below a double's precision

// The natural logarithm of x > 0 by operations that IEEE 754 defines to the bit; a library's differ.
double logarithm(double x) {
#pragma STDC FP_CONTRACT OFF
  int exponent = 0;
  double m = std::frexp(x, &exponent);
  if (m < kSqrtHalf) {
    m *= 2;
    --exponent;
  }
  const double t = (m - 1) / (m + 1), square = t * t;
  double series = 1.0 / kLastTerm;
  for (int term = kLastTerm - 2; term > 0; term -= 2) series = series * square + 1.0 / term;
  return 2 * t * series + exponent * kLn2;
}

// The chance of every word to be a candidate.
std::vector<double> chances_of_words(const std::vector<int64_t>& stream, const std::vector<int64_t>& counts,
                                     size_t drawn) {
  const size_t words = counts.size();
  std::vector<bool> own(words);
  own[kUnk] = own[kEos] = true;
  for (const int64_t id : stream) own[static_cast<size_t>(id)] = true;
  std::vector<uint32_t> others;
  std::vector<double> roots(words);
  for (size_t word = 0; word < words; ++word) {
    if (own[word]) continue;
    others.push_back(static_cast<uint32_t>(word));
    roots[word] = std::sqrt(static_cast<double>(counts[word]) + 0.5);
  }
  if (others.size() <= drawn) return std::vector<double>(words, 1.0);
  std::vector<double> chances = chances_of(roots, std::move(others), drawn);
  for (size_t word = 0; word < words; ++word) {
    chances[word] = own[word] ? 1.0 : std::min(1.0, chances[word]);  // rounding may pass it
  }
  return chances;
}

}  // namespace

OutputSample draw_output_sample(const std::vector<int64_t>& stream, const std::vector<int64_t>& counts, int64_t drawn,
                                uint64_t seed) {
  const std::vector<double> chances = chances_of_words(stream, counts, static_cast<size_t>(drawn));
  const uint64_t random = stream_of(seed, "output-sample");
  OutputSample sample;
  for (size_t word = 0; word < chances.size(); ++word) {
    if (!(uniform_of(random_word(random, word)) < chances[word])) continue;
    sample.candidates.push_back(static_cast<int64_t>(word));
    sample.shifts.push_back(static_cast<float>(0.0 - logarithm(chances[word])));
  }
  return sample;
}

}  // namespace phonograd
