// top-rows: the rows of largest norm of each matrix and a random sample of the others, rotated and quantised.
#include <algorithm>
#include <cmath>

#include "base/chances.h"
#include "base/random_words.h"
#include "update/codec.h"
#include "update/deltas.h"
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

}  // namespace

const Codec kTopRows{"top-rows", encode};

}  // namespace phonograd
