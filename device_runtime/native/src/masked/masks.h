// The keys that phones of a cohort derive, and the streams that hide values and cancel in their sum. FORMAT.md, "Masked
// rounds", masks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "masked/cohort.h"

namespace phonograd {

constexpr size_t kMaskTile = size_t{1} << 15;  // values that are masked at once: a whole number of ChaCha20's blocks

// What two phones derive for a purpose: from the secret key of one and the public key, in hex, of the other. Throws
// Error(update) for an invalid public key.
Secret<32> pair_key(const Cohort& cohort, const Secret<32>& secret, const std::string& key, const char* purpose,
                    size_t first, size_t second);

// One stream.
struct Mask {
  Secret<32> key;
  bool subtract = false;
};

// The mask between two members, as `phone`, whose masking key is `secret`, adds it. Throws Error(update) if the other's
// key is invalid.
Mask pair_mask(const Cohort& cohort, const Secret<32>& secret, size_t phone, size_t other);
// The mask of a phone alone.
Mask self_mask(const Cohort& cohort, const Secret<32>& self);

// Add masks to the values of tile number `tile` of a vector, modulo 2^32; `width` says how long the stream's words are.
void add_masks(const std::vector<Mask>& masks, int width, size_t tile, uint32_t* values, size_t count);

}  // namespace phonograd
