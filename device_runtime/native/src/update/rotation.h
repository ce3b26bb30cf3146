// Randomised Hadamard rotations and quantisation: EDEN (Vargaftik et al., 2022), which the codecs rot-q4, rot-q2 and
// rot-q1 do to every delta. FORMAT.md, "Rotation".
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "update/codec.h"

namespace phonograd {

constexpr size_t kBlock = 4096;  // elements that are rotated together

// Values [start, start + count) of what is to be quantised.
using Values = std::function<void(size_t start, size_t count, float* out)>;

// Adds `NAME.scales` and `NAME.levels` of so many float32 values, at 1, 2 or 4 bits each. A block in memory at a time.
void add_rotated(const std::string& name, size_t elements, int bits, uint64_t seed, const Values& values,
                 EncodedParts& parts);

// Sum of a power of two of numbers, the second half added to the first until one is left; destroys them.
double sum_by_halves(double* values, size_t count);

}  // namespace phonograd
