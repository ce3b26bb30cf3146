#include "masked/shamir.h"

#include <cstring>

#include "base/random_bytes.h"

namespace phonograd {
namespace {

// Products in GF(2^8) modulo x^8 + x^4 + x^3 + x + 1, without a table or a branch on what they are of.
uint8_t times(uint8_t a, uint8_t b) {
  uint8_t product = 0;
  for (int bit = 0; bit < 8; ++bit) {
    product = static_cast<uint8_t>(product ^ (a & -(b & 1)));
    a = static_cast<uint8_t>((a << 1) ^ (0x1B & -(a >> 7)));
    b = static_cast<uint8_t>(b >> 1);
  }
  return product;
}

// 1 / a, which is a^254.
uint8_t inverse(uint8_t a) {
  uint8_t result = 1, power = a;
  for (int bit = 1; bit < 8; ++bit) {
    power = times(power, power);
    result = times(result, power);
  }
  return result;
}

}  // namespace

std::vector<Secret<32>> split_secret(const Secret<32>& secret, size_t threshold, size_t count) {
  std::vector<Secret<32>> coefficients(threshold);  // of x^0, x^1, ...
  std::memcpy(coefficients[0].data(), secret.data(), secret.size());
  for (size_t i = 1; i < threshold; ++i) random_bytes(coefficients[i].data(), coefficients[i].size());
  std::vector<Secret<32>> shares(count);
  for (size_t holder = 0; holder < count; ++holder) {
    const auto x = static_cast<uint8_t>(holder + 1);
    for (size_t byte = 0; byte < secret.size(); ++byte) {
      uint8_t y = 0;
      for (size_t i = threshold; i-- > 0;) y = static_cast<uint8_t>(times(y, x) ^ coefficients[i].data()[byte]);
      shares[holder].data()[byte] = y;
    }
  }
  return shares;
}

Secret<32> join_shares(const std::vector<Share>& shares) {
  Secret<32> secret;
  for (const Share& share : shares) {
    uint8_t factor = 1;  // the Lagrange polynomial's value at 0
    for (const Share& other : shares) {
      if (other.place == share.place) continue;
      factor = times(factor, times(other.place, inverse(static_cast<uint8_t>(other.place ^ share.place))));
    }
    for (size_t byte = 0; byte < secret.size(); ++byte) {
      uint8_t& sum = secret.data()[byte];
      sum = static_cast<uint8_t>(sum ^ times(factor, share.bytes->data()[byte]));
    }
  }
  return secret;
}

}  // namespace phonograd
