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

constexpr size_t kBlock = 4096;     // elements that are rotated together
constexpr int kBits[] = {1, 2, 4};  // a value may have
constexpr int kWholeBits = 4;       // a value has in a tensor that is sent whole

// What a block's scale is: that which makes the mean over the signs right, or that of least squares, which links have.
enum class Scaling { unbiased, nearest };

// Gives values [start, start + count) of those to quantise.
using Values = std::function<void(size_t start, size_t count, float* out)>;

// Adds `NAME.scales` and `NAME.levels` of float32 values, at 1, 2 or 4 bits each. One block is in memory at a time.
void add_rotated(const std::string& name, size_t elements, int bits, uint64_t seed, const Values& values,
                 EncodedParts& parts, Scaling scaling = Scaling::unbiased);

// Adds the specs of what add_rotated adds.
void expect_rotated(const std::string& name, size_t elements, int bits, std::vector<TensorSpec>& parts);

// The values of what add_rotated added of a tensor, as deltas of these rows.
SentValues sent_rotated(const UpdateReader& update, const std::string& name, std::vector<uint32_t> rows, size_t width,
                        int bits);

// Pairwise sum of a power of two of numbers: adds the second half to the first until one is left. Overwrites them.
double sum_by_halves(double* values, size_t count);

// Norms of rows of so many elements, in float64: squares are summed by halves after padding to a power of two.
class RowNorm {
 public:
  explicit RowNorm(size_t width);
  double operator()(const float* row);

 private:
  size_t width_;
  std::vector<double> squares_;
};

}  // namespace phonograd
