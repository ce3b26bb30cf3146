#include "update/decoder.h"

#include <algorithm>
#include <utility>

#include "base/finite.h"
#include "update/sent_rows.h"

namespace phonograd {

ReadBase reader_of(const TensorFile& model, const TensorSpec& tensor) {
  const TensorSpec& found = model.at(tensor.name);
  if (found.dtype != tensor.dtype || found.shape != tensor.shape) {
    throw Error(Status::weights, model.path() + ": tensor " + describe(tensor.name, tensor.dtype, tensor.shape) +
                                     " expected, found " + describe(found.name, found.dtype, found.shape));
  }
  return [&model, at = found.offset](size_t start, size_t count, float* out) {
    model.read(at + start * sizeof(float), count * sizeof(float), out);
  };
}

Decoder::Decoder(const UpdateReader& update, const TensorSpec& tensor, ReadBase base, size_t tile, ReadBase onto)
    : base_(std::move(base)), onto_(std::move(onto)), tile_(tile), width_(row_elements(tensor)) {
  update.parts_of(tensor);
  sent_ = update.codec().sent_values(update, tensor);
  if (sent_.unit > tile_) sent_.unit = 1;  // of rows that are longer than that
  elements_ = sent_.rows.size() * width_;
}

bool Decoder::next(float* values, size_t capacity, std::vector<TileRun>& runs, float* old) {
  runs.clear();
  for (size_t used = 0; at_ < elements_;) {
    const size_t end = piece_end(), count = end - at_;
    if (used + count > capacity) break;
    if (sent_.decode(at_, count, values + used)) {
      add_runs(end, values + used, old == nullptr ? nullptr : old + used, runs);
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
void Decoder::add_runs(size_t end, float* values, float* old, std::vector<TileRun>& runs) {
  for (size_t at = at_; at < end;) {
    const size_t first = at / width_, begin = at;
    size_t row = first;
    while ((row + 1) * width_ < end && sent_.rows[row + 1] == sent_.rows[row] + 1) ++row;
    at = std::min(end, (row + 1) * width_);
    const TileRun run{sent_.rows[first] * width_ + begin % width_, at - begin};
    runs.push_back(run);
    place(run, values + (begin - at_), old == nullptr ? nullptr : old + (begin - at_));
  }
}

// A run's deltas or weights become the weights that next() gives.
void Decoder::place(const TileRun& run, float* own, float* old) {
  if (!sent_.deltas && !onto_ && old == nullptr) return;
  const auto room = [&](std::vector<float>& weights) {
    weights.resize(std::max(weights.size(), run.count));
    return weights.data();
  };
  const size_t count = run.count;
  float* base = onto_ || old == nullptr ? room(base_weights_) : old;
  base_(run.start, count, base);
  if (sent_.deltas) {
    for (size_t i = 0; i < count; ++i) {
      const float sum = base[i] + own[i];
      own[i] = sum == base[i] ? base[i] : sum;  // -0.0 + 0.0 changes nothing
    }
  }
  if (!onto_) return;
  float* onto = old == nullptr ? room(onto_weights_) : old;
  onto_(run.start, count, onto);
  for (size_t i = 0; i < count; ++i) {
    own[i] = static_cast<float>(static_cast<double>(own[i]) - base[i] + onto[i]);
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
