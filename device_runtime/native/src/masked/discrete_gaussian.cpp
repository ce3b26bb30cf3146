#include "masked/discrete_gaussian.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/kernel_set.h"

namespace phonograd {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr double kReach = 9.5;        // standard deviations
constexpr size_t kPiece = 1024;       // numbers drawn at once
constexpr size_t kWordsOfNumber = 4;  // of 32 bits: 64 for the column, 64 for which of its two
constexpr size_t kWordsOfBlock = 16;  // of ChaCha20
constexpr int kFraction = 48;         // weights are multiples of 2^-48 of an integer of 52 bits and more

Wide weight_of(double x, double sigma) {
  const double weight = std::ldexp(std::exp(-x * x / (2 * sigma * sigma)), kFraction + 52);
  int exponent = 0;
  const double mantissa = std::frexp(weight, &exponent);  // in [1/2, 1)
  const auto whole = static_cast<uint64_t>(std::ldexp(mantissa, 53));
  return exponent >= 53 ? Wide{whole} << (exponent - 53) : Wide{whole >> std::min(63, 53 - exponent)};
}

// part / total of 2^64, rounded down; part < total < 2^127.
uint64_t parts_of(Wide part, Wide total) {
  uint64_t parts = 0;
  for (int bit = 0; bit < 64; ++bit) {
    part <<= 1, parts <<= 1;
    if (part >= total) part -= total, parts |= 1;
  }
  return parts;
}

}  // namespace

DiscreteGaussian::DiscreteGaussian(double sigma) {
  const auto reach = static_cast<int32_t>(std::ceil(kReach * sigma));
  size_t size = 1;
  while (size < static_cast<size_t>(reach) * 2 + 1) size *= 2;
  std::vector<Wide> left(size);  // of each number's weight, times the number of columns
  Wide total = 0;
  for (size_t i = 0; i < size; ++i) {
    const int32_t x = static_cast<int32_t>(i) - static_cast<int32_t>(size / 2);
    left[i] = x >= -reach && x <= reach ? weight_of(x, sigma) : 0;
    total += left[i];
  }
  std::vector<size_t> small, large;
  for (size_t i = 0; i < size; ++i) {
    left[i] *= size;
    (left[i] < total ? small : large).push_back(i);
  }
  columns_.resize(size);
  const auto set = [&](size_t i, size_t other) {
    const auto number = [&](size_t of) { return static_cast<int32_t>(of) - static_cast<int32_t>(size / 2); };
    columns_[i] = {left[i] < total ? parts_of(left[i], total) : ~uint64_t{0}, number(i), number(other)};
  };
  while (!small.empty() && !large.empty()) {
    const size_t i = small.back(), other = large.back();
    small.pop_back();
    set(i, other);
    left[other] -= total - left[i];
    if (left[other] >= total) continue;
    large.pop_back();
    small.push_back(other);
  }
  for (const auto* rest : {&small, &large}) {
    for (const size_t i : *rest) set(i, i);
  }
}

void DiscreteGaussian::add(const Secret<32>& key, size_t start, size_t count, uint32_t* values) const {
  uint32_t random[kPiece * kWordsOfNumber];
  for (size_t at = 0; at < count; at += kPiece) {
    const size_t some = std::min(kPiece, count - at);
    std::memset(random, 0, sizeof random);
    const auto block = static_cast<uint32_t>((start + at) * kWordsOfNumber / kWordsOfBlock);
    kernel_set().add_keystream(key.data(), 0, block, some * kWordsOfNumber, 32, false, random);
    for (size_t i = 0; i < some; ++i) {
      const uint32_t* drawn = random + i * kWordsOfNumber;
      const Column& column = columns_[drawn[0] & (columns_.size() - 1)];
      const uint64_t which = uint64_t{drawn[2]} << 32 | drawn[3];
      values[at + i] += static_cast<uint32_t>(which < column.kept ? column.own : column.other);
    }
  }
  wipe(random, sizeof random);
}

}  // namespace phonograd
