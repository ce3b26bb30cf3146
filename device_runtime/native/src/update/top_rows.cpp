// top-rows: the rows of largest norm of each matrix and a random sample of the others, rotated and quantised.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/chances.h"
#include "base/random_words.h"
#include "update/deltas.h"
#include "update/rotation.h"
#include "update/sent_rows.h"
#include "update/update_reader.h"

namespace phonograd {
namespace {

constexpr size_t kRows = 512;  // sent of a matrix, at most
constexpr int kRowBits = 1;

std::vector<double> row_norms(Deltas& deltas) {
  const size_t width = deltas.width();
  std::vector<float> row(width);
  RowNorm norm(width);
  std::vector<double> norms(deltas.rows());
  for (size_t number = 0; number < norms.size(); ++number) {
    deltas.read(number * width, width, row.data());
    norms[number] = norm(row.data());
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
  if (has_rows(base)) return encode_drawn(deltas, base, norms, seed, parts);
  const auto read = [&](size_t start, size_t count, float* out) { deltas.read(start, count, out); };
  add_rotated(base.name, deltas.elements(), kWholeBits, seed, read, parts);
}

bool has_part(const UpdateReader& update, const TensorSpec& tensor) {
  return update.file().find(tensor.name + ".levels") != nullptr;
}

// The bits a weight that give the levels their size.
int bits_of(const UpdateReader& update, const TensorSpec& tensor, size_t elements) {
  const TensorSpec& found = update.file().at(tensor.name + ".levels");
  std::string sizes;
  for (const int bits : kBits) {
    std::vector<TensorSpec> parts;
    expect_rotated(tensor.name, elements, bits, parts);
    const TensorSpec& levels = parts.back();
    if (found.dtype == levels.dtype && found.shape == levels.shape) return bits;
    sizes += (sizes.empty() ? "" : " or ") + describe(levels.name, levels.dtype, levels.shape);
  }
  update.fail(sizes + " expected, found " + describe(found.name, found.dtype, found.shape));
}

void expect(const UpdateReader& update, const TensorSpec& tensor, std::vector<TensorSpec>& parts) {
  if (!has_part(update, tensor)) return;
  const size_t elements = sent_rows(update, tensor).size() * row_elements(tensor);
  expect_mask(update, tensor, parts);
  expect_rotated(tensor.name, elements, bits_of(update, tensor, elements), parts);
}

SentValues sent_values(const UpdateReader& update, const TensorSpec& tensor) {
  if (!has_part(update, tensor)) return {};
  std::vector<uint32_t> rows = sent_rows(update, tensor);
  const size_t width = row_elements(tensor);
  const int bits = bits_of(update, tensor, rows.size() * width);
  return sent_rotated(update, tensor.name, std::move(rows), width, bits);
}

}  // namespace

const Codec kTopRows{"top-rows", encode, expect, sent_values};

}  // namespace phonograd
