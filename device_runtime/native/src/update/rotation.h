// Randomised Hadamard rotations and quantisation, EDEN (Vargaftik et al., 2022), for the codecs rot-q4, rot-q2, rot-q1
// and top-rows. FORMAT.md, "Rotation".
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "update/codec.h"

namespace phonograd {

constexpr size_t kBlock = 4096;  // elements that are rotated together

constexpr size_t kWord = 64;  // signs in a random word, and elements of the smallest block

// A block x of `size` elements, a power of two from kWord to kBlock, becomes H D3 H D2 H D1 x, in place: D are random
// signs, of one stream each; start: the place of its first element. Pure, without tables: any threads at once.
void rotate(float* x, size_t size, size_t start, const uint64_t* streams, size_t rotations);
// D1 H D2 H D3 H x: what `rotate` did, undone, and all times size to the number of rotations.
void rotate_back(float* x, size_t size, size_t start, const uint64_t* streams, size_t rotations);

// Gives values [start, start + count) of those to quantise.
using Values = std::function<void(size_t start, size_t count, float* out)>;

// Adds `NAME.scales` and `NAME.levels` of float32 values, at 1, 2 or 4 bits each. One block is in memory at a time.
void add_rotated(const std::string& name, size_t elements, int bits, uint64_t seed, const Values& values,
                 EncodedParts& parts);

// Elements of the block that begins where `left` are left, padding included.
size_t block_size(size_t left);
// The specs of what add_rotated adds.
void expect_rotated(const std::string& name, size_t elements, int bits, std::vector<TensorSpec>& parts);

// Takes values [start, start + count) of those decoded: a block without its padding.
using TakeValues = std::function<void(size_t start, size_t count, const float* values)>;

// Decodes the parts of `elements` values in `file`, block by block; those of scale 0, which are all 0, are left out.
// Throws Error(update) for a scale that is not finite or below 0.
void decode_rotated(const TensorFile& file, const std::string& name, size_t elements, int bits, uint64_t seed,
                    const TakeValues& take);

// Pairwise sum of a power of two of numbers: adds the second half to the first until one is left. Overwrites them.
double sum_by_halves(double* values, size_t count);

}  // namespace phonograd
