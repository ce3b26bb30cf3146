#include "update/deltas.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace phonograd {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;  // of the base resident at a time
constexpr float kLargestDelta = 0x1p100f;

// Takes pages of a read-only mapping out of resident memory; they come back from the file when they are read again.
void let_go(const unsigned char* begin, const unsigned char* end) {
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t first = reinterpret_cast<uintptr_t>(begin) / page * page;
  madvise(reinterpret_cast<void*>(first), reinterpret_cast<uintptr_t>(end) - first, MADV_DONTNEED);
}

}  // namespace

size_t row_elements(const TensorSpec& spec) {
  return spec.shape.empty() ? 1 : static_cast<size_t>(spec.shape.back());
}

std::vector<uint32_t> moved_rows(const TensorFile& base, const TensorSpec& spec, const float* trained, size_t enough) {
  const size_t row_bytes = row_elements(spec) * sizeof(float);
  const size_t rows = row_bytes == 0 ? 0 : spec.bytes / row_bytes;
  const size_t step = std::max<size_t>(1, kPieceBytes / std::max<size_t>(1, row_bytes));
  const unsigned char* old_bytes = base.data(spec);
  const auto* new_bytes = reinterpret_cast<const unsigned char*>(trained);
  std::vector<uint32_t> moved;
  for (size_t first = 0; first < rows && moved.size() < enough; first += step) {
    const size_t last = std::min(first + step, rows);
    for (size_t row = first; row < last; ++row) {
      // Bits, not values: -0.0 and 0.0 are equal as values.
      const size_t at = row * row_bytes;
      if (std::memcmp(old_bytes + at, new_bytes + at, row_bytes) != 0) moved.push_back(static_cast<uint32_t>(row));
    }
    // From the beginning: the kernel maps pages around the one that is read, so some of earlier pieces are back.
    let_go(old_bytes, old_bytes + last * row_bytes);
  }
  return moved;
}

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
  if (unreleased_ < kPieceBytes / sizeof(float)) return;
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
