// Shamir's secret sharing over GF(256), byte by byte. FORMAT.md, "Masked rounds", shares.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/secret.h"

namespace phonograd {

struct Share {
  uint8_t place;  // of its holder, from 1
  const Secret<32>* bytes;
};

// Shares for holders 1, 2, ... `count`, of which `threshold` give the secret and fewer say nothing. Time does not
// depend on the secret. Throws Error(unsupported) if the system has no random bytes.
std::vector<Secret<32>> split_secret(const Secret<32>& secret, size_t threshold, size_t count);

// The secret that these shares give, if all are of the same one and their places differ.
Secret<32> join_shares(const std::vector<Share>& shares);

}  // namespace phonograd
