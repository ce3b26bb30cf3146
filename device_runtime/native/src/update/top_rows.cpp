// top-rows: the rows of largest norm of each matrix and a random sample of the others, rotated and quantised.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/chances.h"
#include "base/random_words.h"
#include "update/codec.h"
#include "update/deltas.h"
#include "update/draft.h"
#include "update/link.h"
#include "update/rotation.h"

namespace phonograd {
namespace {

constexpr size_t kRows = 512;  // sent of a matrix, at most
constexpr int kRowBits = 1, kWholeBits = 4;

std::vector<double> row_norms(Deltas& deltas) {
  const size_t width = deltas.width();
  size_t padded = 1;
  while (padded < width) padded *= 2;
  std::vector<float> row(width);
  std::vector<double> squares(padded), norms(deltas.rows());
  for (size_t number = 0; number < norms.size(); ++number) {
    deltas.read(number * width, width, row.data());
    for (size_t i = 0; i < width; ++i) squares[i] = static_cast<double>(row[i]) * row[i];
    std::fill(squares.begin() + static_cast<ptrdiff_t>(width), squares.end(), 0.0);
    norms[number] = std::sqrt(sum_by_halves(squares.data(), padded));
  }
  return norms;
}

struct Drawn {
  std::vector<uint32_t> rows;   // ascending
  std::vector<double> chances;  // of being sent, by row
};

Drawn draw_rows(const std::vector<double>& norms, double uniform) {
  Drawn drawn;
  for (size_t row = 0; row < norms.size(); ++row) {
    if (norms[row] != 0) drawn.rows.push_back(static_cast<uint32_t>(row));
  }
  drawn.chances.assign(drawn.rows.size(), 1.0);
  if (drawn.rows.size() <= kRows) return drawn;
  const std::vector<double> chances = chances_of(norms, drawn.rows, kRows);
  drawn = {};
  double sum = 0, before = 0;
  for (size_t row = 0; row < norms.size(); ++row) {
    sum += chances[row];
    const double step = std::floor(sum + uniform);
    if (step != before) {
      drawn.rows.push_back(static_cast<uint32_t>(row));
      drawn.chances.push_back(chances[row]);
    }
    before = step;
  }
  return drawn;
}

void encode_drawn(Deltas& deltas, const TensorSpec& base, const std::vector<double>& norms, uint64_t seed,
                  EncodedParts& parts) {
  const uint64_t word = random_word(stream_of(seed, base.name + ".rows"), 0);
  const Drawn drawn = draw_rows(norms, uniform_of(word));
  const size_t width = deltas.width();
  const auto read = [&](size_t start, size_t count, float* out) {
    deltas.read_rows(drawn.rows, start, count, out);
    for (size_t i = 0; i < count; ++i) out[i] = static_cast<float>(out[i] / drawn.chances[(start + i) / width]);
  };
  add_mask(base, deltas.rows(), drawn.rows, parts);
  add_rotated(base.name, drawn.rows.size() * width, kRowBits, seed, read, parts);
}

void encode(const TensorFile& file, const TensorSpec& base, const Trained& trained, uint64_t seed,
            EncodedParts& parts) {
  Deltas deltas(file, base, trained);
  const std::vector<double> norms = row_norms(deltas);
  if (std::all_of(norms.begin(), norms.end(), [](double norm) { return norm == 0; })) return;
  if (deltas.rows() > 1 && deltas.elements() > kBlock) return encode_drawn(deltas, base, norms, seed, parts);
  const auto read = [&](size_t start, size_t count, float* out) { deltas.read(start, count, out); };
  add_rotated(base.name, deltas.elements(), kWholeBits, seed, read, parts);
}

// The numbers of the rows that are sent, rising: those of the mask's bits, or all of them.
std::vector<uint32_t> sent_rows(const TensorFile& link, const TensorSpec& tensor) {
  const size_t width = row_elements(tensor), count = width == 0 ? 0 : tensor.elements() / width;
  std::vector<uint32_t> rows;
  const TensorSpec* mask = link.find(tensor.name + ".rows");
  if (mask == nullptr) {
    rows.resize(count);
    std::iota(rows.begin(), rows.end(), uint32_t{0});
    return rows;
  }
  const size_t bytes = (count + 7) / 8;
  if (mask->dtype != "U8" || mask->shape != std::vector<int64_t>{static_cast<int64_t>(bytes)}) {
    throw Error(Status::update,
                link.path() + ": " + describe(tensor.name + ".rows", "U8", {static_cast<int64_t>(bytes)}) +
                    " expected, found " + describe(mask->name, mask->dtype, mask->shape) + "; fetch the whole model");
  }
  std::vector<uint8_t> bits(bytes);
  link.read(mask->offset, bytes, bits.data());
  for (size_t row = 0; row < 8 * bytes; ++row) {
    if (bits[row / 8] >> row % 8 & 1) rows.push_back(static_cast<uint32_t>(row));
  }
  if (rows.empty() || rows.back() >= count) {
    throw Error(Status::update, link.path() + ": " + mask->name + ": expected bits of 1 to " + std::to_string(count) +
                                    " rows; fetch the whole model");
  }
  return rows;
}

bool has_part(const TensorFile& link, const TensorSpec& tensor) {
  return link.find(tensor.name + ".levels") != nullptr;
}

// The bits a weight that give the levels their size.
int bits_of(const TensorFile& link, const TensorSpec& tensor, size_t elements) {
  const TensorSpec& found = link.at(tensor.name + ".levels");
  std::string sizes;
  for (const int bits : {1, 2, 4}) {
    std::vector<TensorSpec> parts;
    expect_rotated(tensor.name, elements, bits, parts);
    const TensorSpec& levels = parts.back();
    if (found.dtype == levels.dtype && found.shape == levels.shape) return bits;
    sizes += (sizes.empty() ? "" : " or ") + describe(levels.name, levels.dtype, levels.shape);
  }
  throw Error(Status::update, link.path() + ": " + sizes + " expected, found " +
                                  describe(found.name, found.dtype, found.shape) + "; fetch the whole model");
}

void expect(const TensorFile& link, const TensorSpec& tensor, std::vector<TensorSpec>& parts) {
  if (!has_part(link, tensor)) return;
  const size_t elements = sent_rows(link, tensor).size() * row_elements(tensor);
  if (const TensorSpec* mask = link.find(tensor.name + ".rows")) parts.push_back(*mask);
  expect_rotated(tensor.name, elements, bits_of(link, tensor, elements), parts);
}

void apply(const Link& link, const TensorSpec& tensor, Draft& draft) {
  const TensorFile& file = link.file();
  if (!has_part(file, tensor)) return;
  const std::vector<uint32_t> rows = sent_rows(file, tensor);
  const size_t width = row_elements(tensor), elements = rows.size() * width;
  // Adjacent rows are added as one.
  const auto add = [&](size_t start, size_t count, const float* deltas) {
    for (size_t at = start, end = 0; at < start + count; at = end) {
      size_t row = at / width;
      const size_t place = rows[row] * width + at % width;
      while ((row + 1) * width < start + count && rows[row + 1] == rows[row] + 1) ++row;
      end = std::min(start + count, (row + 1) * width);
      draft.add(file.path(), tensor, place, end - at, deltas + (at - start));
    }
  };
  decode_rotated(file, tensor.name, elements, bits_of(file, tensor, elements), link.seed(), add);
}

}  // namespace

const Codec kTopRows{"top-rows", encode, expect, apply};

}  // namespace phonograd
