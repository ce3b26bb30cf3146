#include "update/deltas.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace phonograd {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;  // of the base resident at a time

// Drops pages of a read-only mapping from resident memory; the next read loads them again.
void let_go(const unsigned char* begin, const unsigned char* end) {
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t first = reinterpret_cast<uintptr_t>(begin) / page * page;
  madvise(reinterpret_cast<void*>(first), reinterpret_cast<uintptr_t>(end) - first, MADV_DONTNEED);
}

// `trained_row(i)`: the row of number `number(i)`, for i below `count`.
template <typename Number, typename Row>
std::vector<uint32_t> moved_among(const TensorFile& base, const TensorSpec& spec, size_t count, size_t enough,
                                  Number number, Row trained_row) {
  const size_t row_bytes = row_elements(spec) * sizeof(float);
  const unsigned char* old_bytes = base.data(spec);
  const size_t step = std::max<size_t>(1, kPieceBytes / std::max<size_t>(1, row_bytes));
  std::vector<uint32_t> moved;
  size_t piece_end = step;
  for (size_t i = 0; i < count && moved.size() < enough; ++i) {
    const size_t row = number(i);
    if (row >= piece_end) {
      // From the beginning: reading a page maps its neighbours too, so some earlier pieces are resident again.
      let_go(old_bytes, old_bytes + row * row_bytes);
      piece_end = row + step;
    }
    // Bits, not values: -0.0 and 0.0 are equal as values.
    if (std::memcmp(old_bytes + row * row_bytes, trained_row(i), row_bytes) != 0) {
      moved.push_back(static_cast<uint32_t>(row));
    }
  }
  let_go(old_bytes, old_bytes + spec.bytes);
  return moved;
}

}  // namespace

std::vector<uint32_t> moved_rows(const TensorFile& base, const TensorSpec& spec, const Trained& trained,
                                 size_t enough) {
  const size_t width = row_elements(spec), rows = row_count(spec);
  const std::vector<uint32_t>* some = trained.rows;
  const auto number = [&](size_t i) { return some == nullptr ? i : (*some)[i]; };
  return moved_among(base, spec, some == nullptr ? rows : some->size(), enough, number,
                     [&](size_t i) { return trained.data + number(i) * width; });
}

std::vector<uint32_t> moved_rows(const TensorFile& base, const TensorSpec& spec, const std::vector<uint32_t>& rows,
                                 const float* packed) {
  const size_t width = row_elements(spec);
  return moved_among(
      base, spec, rows.size(), rows.size(), [&](size_t i) { return rows[i]; },
      [&](size_t i) { return packed + i * width; });
}

Deltas::Deltas(const TensorFile& file, const TensorSpec& base, const Trained& trained)
    : file_(file), base_(base.offset), trained_(trained.data), width_(row_elements(base)), rows_(row_count(base)) {
  if (trained.rows == nullptr) return;
  may_move_.resize(rows_);
  for (const uint32_t row : *trained.rows) may_move_[row] = true;
}

void Deltas::read(size_t start, size_t count, float* out) {
  if (may_move_.empty()) return read_moved(start, count, out);
  while (count > 0) {
    const size_t row = start / width_, some = std::min(count, (row + 1) * width_ - start);
    if (may_move_[row]) {
      read_moved(start, some, out);
    } else {
      std::fill_n(out, some, 0.0f);
    }
    start += some, out += some, count -= some;
  }
}

void Deltas::read_moved(size_t start, size_t count, float* out) {
  file_.read(base_ + start * sizeof(float), count * sizeof(float), out);
  for (size_t i = 0; i < count; ++i) {
    const float delta = trained_[start + i] - out[i];
    out[i] = std::min(std::max(delta, -kLargestDelta), kLargestDelta);
  }
}

void Deltas::read_rows(const std::vector<uint32_t>& rows, size_t start, size_t count, float* out) {
  while (count > 0) {
    const size_t at = start % width_, some = std::min(count, width_ - at);
    read(rows[start / width_] * width_ + at, some, out);
    start += some, out += some, count -= some;
  }
}

}  // namespace phonograd
