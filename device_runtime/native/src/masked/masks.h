// The streams that hide values and cancel in their sum. FORMAT.md, "Masked rounds", masks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "masked/cohort.h"

namespace phonograd {

constexpr size_t kMaskTile = size_t{1} << 15;  // values that are masked at once: a whole number of ChaCha20's blocks

// One stream.
struct Mask {
  Secret<32> key;
  bool subtract = false;
};

// The mask between two members, as `phone` adds it: from its masking key and the other's public one, or the other way
// round. Throws Error(update) for a public key that is none.
Mask pair_mask(const Cohort& cohort, size_t phone, size_t other, const Secret<32>& secret, const PublicKey& key);
// The mask of a phone alone.
Mask self_mask(const Cohort& cohort, const Secret<32>& self);

// Add masks to the values of tile number `tile` of a vector, modulo 2^32; `width` says how long the stream's words are.
void add_masks(const std::vector<Mask>& masks, int width, size_t tile, uint32_t* values, size_t count);

}  // namespace phonograd
