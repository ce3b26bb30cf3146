#include "update/decoder.h"

#include <algorithm>
#include <utility>

#include "base/finite.h"
#include "update/sent_rows.h"

namespace phonograd {

Decoder::Decoder(const UpdateReader& update, const TensorSpec& tensor, ReadBase base, size_t tile)
    : base_(std::move(base)), tile_(tile), width_(row_elements(tensor)) {
  update.parts_of(tensor);
  sent_ = update.codec().sent(update, tensor);
  if (sent_.unit > tile_) sent_.unit = 1;  // of rows that are longer than that
  elements_ = sent_.rows.size() * width_;
}

bool Decoder::next(float* values, size_t capacity, std::vector<TileRun>& runs) {
  runs.clear();
  for (size_t used = 0; at_ < elements_;) {
    const size_t end = piece_end(), count = end - at_;
    if (used + count > capacity) break;
    if (sent_.decode(at_, count, values + used)) {
      add_runs(end, values + used, runs);
      used += count;
    }
    at_ = end;
  }
  return !runs.empty();
}

size_t Decoder::piece_end() const {
  size_t limit = elements_;
  if (sent_.run_by_run) {
    size_t row = at_ / width_;
    while (row + 1 < sent_.rows.size() && sent_.rows[row + 1] == sent_.rows[row] + 1) ++row;
    limit = (row + 1) * width_;
  }
  const size_t end = at_ + tile_ / sent_.unit * sent_.unit;
  if (end <= limit) return end;
  const size_t whole = limit / sent_.unit * sent_.unit;
  return whole > at_ ? whole : limit;
}

// The piece [at_, end) of the values sent, whose deltas or weights are in `values`.
void Decoder::add_runs(size_t end, float* values, std::vector<TileRun>& runs) {
  for (size_t at = at_; at < end;) {
    const size_t first = at / width_, begin = at;
    size_t row = first;
    while ((row + 1) * width_ < end && sent_.rows[row + 1] == sent_.rows[row] + 1) ++row;
    at = std::min(end, (row + 1) * width_);
    const TileRun run{sent_.rows[first] * width_ + begin % width_, at - begin};
    runs.push_back(run);
    float* own = values + (begin - at_);
    if (!sent_.deltas) continue;
    old_.resize(std::max(old_.size(), run.count));
    base_(run.start, run.count, old_.data());
    for (size_t i = 0; i < run.count; ++i) {
      const float sum = old_[i] + own[i];
      own[i] = sum == old_[i] ? old_[i] : sum;  // -0.0 + 0.0 changes nothing
    }
  }
}

void check_finite(const UpdateReader& update, const TensorSpec& tensor, const std::vector<TileRun>& runs,
                  const float* values) {
  for (const TileRun& run : runs) {
    const size_t bad = first_not_finite(values, run.count);
    if (bad < run.count) update.fail("tensor " + tensor.name + ": " + not_finite(values[bad], run.start + bad));
    values += run.count;
  }
}

}  // namespace phonograd
