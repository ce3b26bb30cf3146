#include "operators/output_parts.h"

#include <algorithm>

namespace phonograd {

namespace {

// More threads than this run on cores of unequal speed: phones with as many equal cores are rare. Cutting parts costs
// a little time, because every slice reads D again.
constexpr int kEqualThreads = 3;
// One fast, three middle and four little cores reach 70 % of what they can together with whole parts only, and 95 %
// with half of the parts cut (tests/native/test_shares.py).
constexpr int64_t kWhole = OutputParts::kParts / 2;

}  // namespace

OutputParts::OutputParts(int64_t blocks, int64_t H, int64_t panel, int threads)
    : blocks_(blocks), H_(H), panel_(panel), whole_(threads > kEqualThreads ? kWhole : kParts) {}

OutputParts::Piece OutputParts::piece(int64_t number) const {
  if (number < whole_) return {number, 0, H_, true};
  const int64_t cut = kParts - whole_;
  number -= whole_;
  if (number < cut) return {whole_ + number, 0, 0, true};
  number -= cut;
  const int64_t slice = number % kSlices;
  return {whole_ + number / kSlices, column(slice), column(slice + 1), false};
}

int64_t OutputParts::column(int64_t slice) const {
  const int64_t panels = (H_ + panel_ - 1) / panel_;
  return std::min(H_, panels * slice / kSlices * panel_);
}

}  // namespace phonograd
