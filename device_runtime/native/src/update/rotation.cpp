#include "update/rotation.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/random_words.h"
#include "kernels/kernel_set.h"
#include "update/deltas.h"

namespace phonograd {
namespace {

// With one rotation, a block with few nonzero values would have few magnitudes, whose rounding no signs change.
constexpr size_t kRotations = 3;

constexpr const char* kScales = ".scales";
constexpr const char* kLevels = ".levels";

// Lloyd-Max levels of a standard Gaussian, the positive half.
constexpr float kLevels1[] = {0.7978846f};
constexpr float kLevels2[] = {0.4527800f, 1.5104176f};
constexpr float kLevels4[] = {0.1283950f, 0.3880483f, 0.6567591f, 0.9423404f,
                              1.2562312f, 1.6180464f, 2.0690172f, 2.7325895f};

// All levels, ascending.
std::vector<float> levels_of(int bits) {
  const float* half = bits == 1 ? kLevels1 : bits == 2 ? kLevels2 : kLevels4;
  const size_t count = size_t{1} << (bits - 1);
  std::vector<float> levels;
  for (size_t i = count; i > 0; --i) levels.push_back(-half[i - 1]);
  levels.insert(levels.end(), half, half + count);
  return levels;
}

// The random signs of a block, a bit each.
struct Signs {
  uint64_t words[kBlock / kWord];

  Signs(uint64_t stream, size_t start, size_t size) {
    for (size_t i = 0; i < size / kWord; ++i) words[i] = random_word(stream, start / kWord + i);
  }
};

// The streams of each rotation's signs: NAME, NAME#2, NAME#3.
std::vector<uint64_t> sign_streams(uint64_t seed, const std::string& name) {
  std::vector<uint64_t> streams;
  for (size_t number = 1; number <= kRotations; ++number) {
    streams.push_back(stream_of(seed, number == 1 ? name : name + "#" + std::to_string(number)));
  }
  return streams;
}

// Writes the level numbers of a rotated block, packed from each byte's low bits, and returns the block's scale.
float quantise(const float* y, size_t size, int bits, const std::vector<float>& levels, uint8_t* packed) {
  double sums[kBlock];
  for (size_t i = 0; i < size; ++i) sums[i] = static_cast<double>(y[i]) * y[i];
  const double energy = sum_by_halves(sums, size), sigma = std::sqrt(energy / static_cast<double>(size));
  std::vector<float> thresholds;
  for (size_t i = 0; i + 1 < levels.size(); ++i) {
    const double between = (static_cast<double>(levels[i + 1]) + levels[i]) / 2;
    thresholds.push_back(static_cast<float>(between * sigma));
  }
  for (size_t i = 0; i < size; ++i) {
    size_t number = 0;
    for (const float threshold : thresholds) number += y[i] > threshold;
    const size_t at = i * static_cast<size_t>(bits);
    packed[at / 8] = static_cast<uint8_t>(packed[at / 8] | number << at % 8);
    sums[i] = static_cast<double>(y[i]) * levels[number];
  }
  double aligned = sum_by_halves(sums, size);
  for (size_t i = 0; i < kRotations; ++i) aligned *= static_cast<double>(size);
  return aligned > 0 ? static_cast<float>(energy / aligned) : 0.0f;
}

// The levels of a block, from numbers that `quantise` has packed.
void unpack(const uint8_t* packed, size_t size, int bits, const std::vector<float>& levels, float* x) {
  for (size_t i = 0; i < size; ++i) {
    const size_t at = i * static_cast<size_t>(bits);
    x[i] = levels[packed[at / 8] >> at % 8 & (levels.size() - 1)];
  }
}

// rot-q4, rot-q2, rot-q1: every delta.
template <int kBits>
void encode(const TensorFile& file, const TensorSpec& base, const Trained& trained, uint64_t seed,
            EncodedParts& parts) {
  Deltas deltas(file, base, trained);
  const auto read = [&](size_t start, size_t count, float* out) { deltas.read(start, count, out); };
  add_rotated(base.name, deltas.elements(), kBits, seed, read, parts);
}

}  // namespace

const Codec kRotQ4{"rot-q4", encode<4>};
const Codec kRotQ2{"rot-q2", encode<2>};
const Codec kRotQ1{"rot-q1", encode<1>};

void rotate(float* x, size_t size, size_t start, const uint64_t* streams, size_t rotations) {
  const KernelSet& kernels = kernel_set();
  for (size_t rotation = 0; rotation < rotations; ++rotation) {
    const Signs signs(streams[rotation], start, size);
    kernels.change_signs(size, signs.words, x);
    kernels.hadamard(size, x);
  }
}

void rotate_back(float* x, size_t size, size_t start, const uint64_t* streams, size_t rotations) {
  const KernelSet& kernels = kernel_set();
  for (size_t rotation = rotations; rotation-- > 0;) {
    const Signs signs(streams[rotation], start, size);
    kernels.hadamard(size, x);
    kernels.change_signs(size, signs.words, x);
  }
}

size_t block_size(size_t left) {
  size_t size = kWord;
  while (size < left && size < kBlock) size *= 2;
  return size;
}

double sum_by_halves(double* values, size_t count) {
  for (size_t half = count / 2; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) values[i] += values[i + half];
  }
  return values[0];
}

void add_rotated(const std::string& name, size_t elements, int bits, uint64_t seed, const Values& values,
                 EncodedParts& parts) {
  const std::vector<float> levels = levels_of(bits);
  const std::vector<uint64_t> streams = sign_streams(seed, name);
  std::vector<float> scales;
  std::vector<uint8_t> packed;
  float x[kBlock];
  for (size_t start = 0; start < elements; start += kBlock) {
    const size_t size = block_size(elements - start), some = std::min(size, elements - start);
    values(start, some, x);
    std::fill(x + some, x + size, 0.0f);
    rotate(x, size, start, streams.data(), streams.size());
    const size_t end = packed.size();
    packed.resize(end + size * static_cast<size_t>(bits) / 8);
    scales.push_back(quantise(x, size, bits, levels, packed.data() + end));
  }
  const int64_t blocks = static_cast<int64_t>(scales.size()), bytes = static_cast<int64_t>(packed.size());
  parts.add(name + kScales, "F32", {blocks}, std::move(scales));
  parts.add(name + kLevels, "U8", {bytes}, std::move(packed));
}

void expect_rotated(const std::string& name, size_t elements, int bits, std::vector<TensorSpec>& parts) {
  const size_t rest = elements % kBlock, whole = elements - rest, padded = whole + (rest == 0 ? 0 : block_size(rest));
  const auto blocks = static_cast<int64_t>(elements / kBlock + (rest != 0));
  parts.push_back({name + kScales, "F32", {blocks}});
  parts.push_back({name + kLevels, "U8", {static_cast<int64_t>(padded / 8 * static_cast<size_t>(bits))}});
}

void decode_rotated(const TensorFile& file, const std::string& name, size_t elements, int bits, uint64_t seed,
                    const TakeValues& take) {
  const std::vector<float> levels = levels_of(bits);
  const std::vector<uint64_t> streams = sign_streams(seed, name);
  size_t scale_at = file.at(name + kScales).offset, packed_at = file.at(name + kLevels).offset;
  std::vector<uint8_t> packed(kBlock / 2);
  std::vector<float> x(kBlock);
  for (size_t start = 0; start < elements; start += kBlock) {
    const size_t size = block_size(elements - start), bytes = size * static_cast<size_t>(bits) / 8;
    float scale = 0;
    file.read(scale_at, sizeof scale, &scale);
    if (!(std::isfinite(scale) && scale >= 0)) {
      throw Error(Status::update, file.path() + ": " + name + kScales +
                                      ": finite scales of at least 0 expected, found " + std::to_string(scale) +
                                      "; fetch the whole model");
    }
    if (scale != 0) {
      file.read(packed_at, bytes, packed.data());
      unpack(packed.data(), size, bits, levels, x.data());
      rotate_back(x.data(), size, start, streams.data(), streams.size());
      for (size_t i = 0; i < size; ++i) x[i] *= scale;
      take(start, std::min(size, elements - start), x.data());
    }
    scale_at += sizeof scale, packed_at += bytes;
  }
}

}  // namespace phonograd
