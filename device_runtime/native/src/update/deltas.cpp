#include "update/deltas.h"

#include <algorithm>
#include <cstring>

#include "update/moved_rows.h"

namespace phonograd {
namespace {

constexpr size_t kPieceElements = size_t{1} << 18;  // of the base resident at a time
constexpr float kLargestDelta = 0x1p100f;

}  // namespace

Deltas::Deltas(const TensorFile& file, const TensorSpec& base, const float* trained)
    : file_(file), base_(file.data(base)), trained_(trained), width_(row_elements(base)) {
  rows_ = width_ == 0 ? 0 : base.elements() / width_;
}

void Deltas::read(size_t start, size_t count, float* out) {
  std::memcpy(out, base_ + start * sizeof(float), count * sizeof(float));  // it may lie at any byte
  for (size_t i = 0; i < count; ++i) {
    const float delta = trained_[start + i] - out[i];
    out[i] = std::min(std::max(delta, -kLargestDelta), kLargestDelta);
  }
  unreleased_ += count;
  if (unreleased_ < kPieceElements) return;
  file_.release_pages();
  unreleased_ = 0;
}

void Deltas::read_rows(const std::vector<uint32_t>& rows, size_t start, size_t count, float* out) {
  while (count > 0) {
    const size_t at = start % width_, some = std::min(count, width_ - at);
    read(rows[start / width_] * width_ + at, some, out);
    start += some, out += some, count -= some;
  }
}

void add_mask(const TensorSpec& base, size_t rows, const std::vector<uint32_t>& sent, EncodedParts& parts) {
  if (sent.size() == rows) return;
  std::vector<uint8_t> bits((rows + 7) / 8);
  for (const uint32_t row : sent) bits[row / 8] = static_cast<uint8_t>(bits[row / 8] | 1u << row % 8);
  const int64_t bytes = static_cast<int64_t>(bits.size());
  parts.add(base.name + ".rows", "U8", {bytes}, std::move(bits));
}

}  // namespace phonograd
