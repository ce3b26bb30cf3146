#include "update/decoded_update.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace phonograd {
namespace {

// Weights decoded at a time: with their deltas they stay in a core's second-level cache.
constexpr size_t kTile = size_t{1} << 14;
constexpr size_t kEight = 8;  // what measure_deltas takes a multiple of
// Integers below this are added by vectors.
constexpr double kSmall = 0x1p50;

}  // namespace

DecodedUpdate::DecodedUpdate(const UpdateReader& update, const TensorFile& base, const std::set<std::string>& frozen,
                             const TensorFile* onto, size_t held)
    : specs_(base.specs()) {
  for (const TensorSpec& tensor : specs_) {
    decoders_.emplace_back();
    if (frozen.count(tensor.name) != 0) continue;
    const ReadBase other = onto == nullptr ? ReadBase() : reader_of(*onto, tensor);
    decoders_.back() = std::make_unique<Decoder>(update, tensor, reader_of(base, tensor), kTile, other);
    elements_ += decoders_.back()->elements();
  }
  holds_ = elements_ <= held;
}

template <typename Work>
void DecodedUpdate::for_each_tile(Work work) {
  if (!held_) return decode(holds_, work);
  for (const Tile& tile : tiles_) work(tile);
}

template <typename Work>
void DecodedUpdate::decode(bool hold, Work work) {
  const KernelSet& kernels = kernel_set();
  tiles_.clear();
  trained_.resize(kTile + kEight);
  old_.resize(kTile + kEight);
  // Not cleared. Each tile begins where the last one ended, and is written up to a multiple of eight.
  if (hold || deltas_ == nullptr) deltas_.reset(new double[(hold ? elements_ : kTile) + kEight]);
  double* deltas = deltas_.get();
  for (size_t tensor = 0; tensor < decoders_.size(); ++tensor) {
    if (decoders_[tensor] == nullptr) continue;
    Decoder& decoder = *decoders_[tensor];
    decoder.rewind();
    Tile tile{tensor, {}, deltas, {}};
    while (decoder.next(trained_.data(), kTile, tile.runs, old_.data())) {
      size_t count = 0;
      for (const TileRun& run : tile.runs) count += run.count;
      const size_t padded = (count + kEight - 1) / kEight * kEight;
      std::fill(trained_.data() + count, trained_.data() + padded, 0.0f);
      std::fill(old_.data() + count, old_.data() + padded, 0.0f);
      tile.norms = kernels.measure_deltas(padded, trained_.data(), old_.data(), deltas);
      tile.deltas = deltas;
      if (!std::isfinite(tile.norms.sum)) refuse(tile, count);
      work(tile);
      if (!hold) continue;
      tiles_.push_back(tile);
      deltas += count;
    }
  }
  held_ = hold;
}

void DecodedUpdate::refuse(const Tile& tile, size_t count) const {
  const double* bad =
      std::find_if(tile.deltas, tile.deltas + count, [](double delta) { return !std::isfinite(delta); });
  auto left = static_cast<size_t>(bad - tile.deltas);
  auto run = tile.runs.begin();
  for (; left >= run->count; ++run) left -= run->count;
  const std::string found = std::isnan(*bad) ? "nan" : *bad > 0 ? "inf" : "-inf";
  throw Error(Status::weights, "update: tensor " + specs_[tile.tensor].name + ": element " +
                                   std::to_string(run->start + left) + " differs from the base by " + found +
                                   ", expected a finite number");
}

const std::vector<DeltaNorms>& DecodedUpdate::measure() {
  if (!norms_.empty()) return norms_;
  std::vector<DeltaNorms> norms(specs_.size());
  for_each_tile([&](const Tile& tile) { note(tile, norms); });
  return norms_ = std::move(norms);
}

void DecodedUpdate::add(double steps_per_unit, int64_t weight, const double* scales, int64_t* const* sums) {
  for_each_tile([&](const Tile& tile) {
    const double scale = scales == nullptr ? 1.0 : scales[tile.tensor];
    add_tile(tile, {steps_per_unit * scale, scales != nullptr, weight}, sums);
  });
}

const std::vector<DeltaNorms>& DecodedUpdate::take(double steps_per_unit, int64_t weight, double limit,
                                                   int64_t* const* sums) {
  std::vector<DeltaNorms> norms(specs_.size());
  size_t added = 0;
  bool fits = true;
  try {
    decode(false, [&](const Tile& tile) {
      note(tile, norms);
      fits = fits && tile.norms.largest < limit;
      if (!fits) return;
      add_tile(tile, {steps_per_unit, false, weight}, sums);
      ++added;
    });
  } catch (const Error&) {
    take_back(added, {steps_per_unit, false, -weight}, sums);
    throw;
  }
  if (!fits) take_back(added, {steps_per_unit, false, -weight}, sums);
  return norms_ = std::move(norms);
}

// The first `tiles`, which were added.
void DecodedUpdate::take_back(size_t tiles, const DeltaSteps& steps, int64_t* const* sums) {
  try {
    decode(false, [&](const Tile& tile) {
      if (tiles == 0) return;
      add_tile(tile, steps, sums);
      --tiles;
    });
  } catch (const Error& error) {
    if (tiles > 0) throw Error(Status::storage, error.what());  // else it is why they are taken back
  }
}

void DecodedUpdate::note(const Tile& tile, std::vector<DeltaNorms>& norms) {
  DeltaNorms& all = norms[tile.tensor];
  all.largest = std::max(all.largest, tile.norms.largest);
  all.sum += tile.norms.sum;
  all.squares += tile.norms.squares;
}

void DecodedUpdate::add_tile(const Tile& tile, const DeltaSteps& steps, int64_t* const* sums) {
  const bool small = tile.norms.largest * steps.factor * std::abs(static_cast<double>(steps.weight)) < kSmall;
  const double* deltas = tile.deltas;
  for (const TileRun& run : tile.runs) {
    kernel_set().add_deltas(run.count, deltas, steps, small, sums[tile.tensor] + run.start);
    deltas += run.count;
  }
}

}  // namespace phonograd
