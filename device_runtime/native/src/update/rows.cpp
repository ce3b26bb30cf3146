// rows-f32: lossless; rows that did not move are left out. A row is the last dimension.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "update/codec.h"

namespace phonograd {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;  // of the base resident at a time

// Takes pages of a read-only mapping out of resident memory; they come back from the file when they are read again.
void let_go(const unsigned char* begin, const unsigned char* end) {
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t first = reinterpret_cast<uintptr_t>(begin) / page * page;
  madvise(reinterpret_cast<void*>(first), reinterpret_cast<uintptr_t>(end) - first, MADV_DONTNEED);
}

// Numbers of the rows whose bits differ, rising; it stops early once there are `enough` of them. Bits, not values: -0.0
// and 0.0 are equal as values.
std::vector<uint32_t> moved_rows(const unsigned char* base, const unsigned char* trained, size_t rows, size_t row_bytes,
                                 size_t enough) {
  std::vector<uint32_t> moved;
  const size_t step = std::max<size_t>(1, kPieceBytes / std::max<size_t>(1, row_bytes));
  for (size_t first = 0; first < rows && moved.size() < enough; first += step) {
    const size_t last = std::min(first + step, rows);
    for (size_t row = first; row < last; ++row) {
      const size_t at = row * row_bytes;
      if (std::memcmp(base + at, trained + at, row_bytes) != 0) moved.push_back(static_cast<uint32_t>(row));
    }
    let_go(base + first * row_bytes, base + last * row_bytes);
  }
  return moved;
}

void encode(const TensorFile& file, const TensorSpec& base, const float* trained, EncodedParts& parts) {
  const int64_t width = base.shape.empty() ? 1 : base.shape.back();
  const size_t row_bytes = static_cast<size_t>(width) * sizeof(float);
  const size_t rows = row_bytes == 0 ? 0 : base.bytes / row_bytes;
  // The fewest moved rows that take as much as the whole: a number of 4 bytes goes with each.
  const size_t cost = sizeof(uint32_t) + row_bytes, enough = (base.bytes + cost - 1) / cost;
  const auto* words = reinterpret_cast<const unsigned char*>(trained);
  std::vector<uint32_t> moved = moved_rows(file.data(base), words, rows, row_bytes, enough);
  if (moved.size() >= enough) return kFullF32.encode(file, base, trained, parts);

  std::vector<uint32_t> values(moved.size() * static_cast<size_t>(width));
  for (size_t i = 0; i < moved.size(); ++i) {
    std::memcpy(values.data() + i * static_cast<size_t>(width), words + moved[i] * row_bytes, row_bytes);
  }
  const int64_t count = static_cast<int64_t>(moved.size());
  const auto add = [&parts](const std::string& name, const char* dtype, std::vector<int64_t> shape,
                            std::vector<uint32_t> data) {
    const std::vector<uint32_t>& kept = parts.gathered.emplace_back(std::move(data));
    parts.tensors.push_back({name, dtype, std::move(shape), kept.data()});
  };
  add(base.name + ".rows", "U32", {count}, std::move(moved));
  add(base.name + ".values", "F32", {count, width}, std::move(values));
}

}  // namespace

const Codec kRowsF32{"rows-f32", encode};

}  // namespace phonograd
