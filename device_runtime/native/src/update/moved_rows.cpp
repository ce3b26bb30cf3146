#include "update/moved_rows.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace phonograd {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;  // of the base resident at a time

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

}  // namespace phonograd
