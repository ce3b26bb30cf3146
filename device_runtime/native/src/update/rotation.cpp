#include "update/rotation.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "base/random_words.h"
#include "kernels/kernel_set.h"
#include "update/deltas.h"
#include "update/sent_rows.h"
#include "update/update_reader.h"

namespace phonograd {
namespace {

// With one rotation, a block with few nonzero values would have few magnitudes, whose rounding no signs change.
constexpr size_t kRotations = 3;
constexpr size_t kWord = 64;  // signs in a random word, and elements of the smallest block

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

// A block x of `size` elements, a power of two from kWord to kBlock, becomes H D3 H D2 H D1 x, in place: D are random
// signs, of one stream each; start: the place of its first element.
void rotate(float* x, size_t size, size_t start, const std::vector<uint64_t>& streams) {
  const KernelSet& kernels = kernel_set();
  for (const uint64_t stream : streams) {
    const Signs signs(stream, start, size);
    kernels.change_signs(size, signs.words, x);
    kernels.hadamard(size, x);
  }
}

// D1 H D2 H D3 H x: what `rotate` did, undone, and all times size to the number of rotations.
void rotate_back(float* x, size_t size, size_t start, const std::vector<uint64_t>& streams) {
  const KernelSet& kernels = kernel_set();
  for (size_t rotation = streams.size(); rotation-- > 0;) {
    const Signs signs(streams[rotation], start, size);
    kernels.hadamard(size, x);
    kernels.change_signs(size, signs.words, x);
  }
}

// Elements of the block that begins where `left` are left, padding included.
size_t block_size(size_t left) {
  size_t size = kWord;
  while (size < left && size < kBlock) size *= 2;
  return size;
}

// Writes the level numbers of a rotated block, packed from each byte's low bits, and returns the block's scale.
float quantise(const float* y, size_t size, int bits, const std::vector<float>& levels, Scaling scaling,
               uint8_t* packed) {
  double sums[kBlock], squares[kBlock];
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
    squares[i] = static_cast<double>(levels[number]) * levels[number];
  }
  const double aligned = sum_by_halves(sums, size);
  if (!(aligned > 0)) return 0;
  const bool unbiased = scaling == Scaling::unbiased;
  double below = unbiased ? aligned : sum_by_halves(squares, size);
  for (size_t i = 0; i < kRotations; ++i) below *= static_cast<double>(size);
  return static_cast<float>((unbiased ? energy : aligned) / below);
}

// The levels that each byte holds, one byte's after the other.
std::vector<float> levels_by_byte(int bits) {
  const std::vector<float> levels = levels_of(bits);
  std::vector<float> table;
  for (size_t byte = 0; byte < 256; ++byte) {
    for (int at = 0; at < 8; at += bits) table.push_back(levels[byte >> at & (levels.size() - 1)]);
  }
  return table;
}

// Decodes blocks of a tensor.
class RotatedValues {
 public:
  RotatedValues(const UpdateReader& update, const std::string& name, size_t elements, int bits)
      : update_(&update),
        name_(name),
        elements_(elements),
        bits_(static_cast<size_t>(bits)),
        levels_at_(update.file().at(name + kLevels).offset),
        streams_(sign_streams(update.info().seed, name)),
        table_(levels_by_byte(bits)) {}

  // `start` is a block's first value; the last block's may be cut.
  bool operator()(size_t start, size_t count, float* out) {
    scales_.resize((count + kBlock - 1) / kBlock);
    read_scales(*update_, name_, start / kBlock, scales_.size(), scales_.data());
    if (std::all_of(scales_.begin(), scales_.end(), [](float scale) { return scale == 0; })) return false;
    for (size_t i = 0; i < scales_.size(); ++i) {
      decode(start + i * kBlock, std::min(kBlock, count - i * kBlock), scales_[i], out + i * kBlock);
    }
    return true;
  }

 private:
  void decode(size_t start, size_t count, float scale, float* out) {
    if (scale == 0) {
      std::fill(out, out + count, 0.0f);
      return;
    }
    const size_t size = block_size(elements_ - start), bytes = size * bits_ / 8, each = 8 / bits_;
    update_->file().read(levels_at_ + start * bits_ / 8, bytes, packed_);
    if (each == 8) unpack<8>(bytes);
    if (each == 4) unpack<4>(bytes);
    if (each == 2) unpack<2>(bytes);
    rotate_back(x_, size, start, streams_);
    for (size_t i = 0; i < count; ++i) out[i] = x_[i] * scale;
  }

  template <size_t kEach>  // levels in a byte
  void unpack(size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) {
      std::memcpy(x_ + i * kEach, &table_[packed_[i] * kEach], kEach * sizeof(float));
    }
  }

  const UpdateReader* update_;
  std::string name_;
  size_t elements_, bits_, levels_at_;
  std::vector<uint64_t> streams_;
  std::vector<float> table_, scales_;
  uint8_t packed_[kBlock / 2];
  float x_[kBlock];
};

// rot-q4, rot-q2, rot-q1: every delta.
template <int kBits>
void encode(const TensorFile& file, const TensorSpec& base, const Trained& trained, uint64_t seed,
            EncodedParts& parts) {
  Deltas deltas(file, base, trained);
  const auto read = [&](size_t start, size_t count, float* out) { deltas.read(start, count, out); };
  add_rotated(base.name, deltas.elements(), kBits, seed, read, parts);
}

template <int kBits>
void expect(const UpdateReader&, const TensorSpec& tensor, std::vector<TensorSpec>& parts) {
  expect_rotated(tensor.name, tensor.elements(), kBits, parts);
}

template <int kBits>
SentValues sent_values(const UpdateReader& update, const TensorSpec& tensor) {
  return sent_rotated(update, tensor.name, all_rows(tensor), row_elements(tensor), kBits);
}

}  // namespace

const Codec kRotQ4{"rot-q4", encode<4>, expect<4>, sent_values<4>};
const Codec kRotQ2{"rot-q2", encode<2>, expect<2>, sent_values<2>};
const Codec kRotQ1{"rot-q1", encode<1>, expect<1>, sent_values<1>};

double sum_by_halves(double* values, size_t count) {
  for (size_t half = count / 2; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) values[i] += values[i + half];
  }
  return values[0];
}

RowNorm::RowNorm(size_t width) : width_(width) {
  size_t padded = 1;
  while (padded < width) padded *= 2;
  squares_.resize(padded);
}

double RowNorm::operator()(const float* row) {
  for (size_t i = 0; i < width_; ++i) squares_[i] = static_cast<double>(row[i]) * row[i];
  std::fill(squares_.begin() + static_cast<ptrdiff_t>(width_), squares_.end(), 0.0);
  return std::sqrt(sum_by_halves(squares_.data(), squares_.size()));
}

void add_rotated(const std::string& name, size_t elements, int bits, uint64_t seed, const Values& values,
                 EncodedParts& parts, Scaling scaling) {
  const std::vector<float> levels = levels_of(bits);
  const std::vector<uint64_t> streams = sign_streams(seed, name);
  std::vector<float> scales;
  std::vector<uint8_t> packed;
  float x[kBlock];
  for (size_t start = 0; start < elements; start += kBlock) {
    const size_t size = block_size(elements - start), some = std::min(size, elements - start);
    values(start, some, x);
    std::fill(x + some, x + size, 0.0f);
    rotate(x, size, start, streams);
    const size_t end = packed.size();
    packed.resize(end + size * static_cast<size_t>(bits) / 8);
    scales.push_back(quantise(x, size, bits, levels, scaling, packed.data() + end));
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

SentValues sent_rotated(const UpdateReader& update, const std::string& name, std::vector<uint32_t> rows, size_t width,
                        int bits) {
  SentValues sent;
  sent.unit = kBlock;
  sent.decode = RotatedValues(update, name, rows.size() * width, bits);
  sent.rows = std::move(rows);
  return sent;
}

}  // namespace phonograd
