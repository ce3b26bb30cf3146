#include "masked/sum.h"

#include <algorithm>
#include <atomic>

#include "base/error.h"
#include "masked/messages.h"
#include "masked/shamir.h"

namespace phonograd {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw Error(Status::update, message);
}

// The secret of a phone from its holders' answers; `wrong` gets those whose shares do not fit.
template <typename Fits>
Secret<32> join_secret(const Cohort& cohort, const std::map<size_t, Answer>& answers, size_t phone, Fits fits,
                       std::set<size_t>& wrong) {
  const size_t needed = cohort.rule().threshold;
  const std::vector<size_t> holders = cohort.holders_of(phone);
  std::vector<Share> shares;
  for (size_t place = 0; place < holders.size(); ++place) {
    const auto answer = answers.find(holders[place]);
    if (answer == answers.end()) continue;
    const auto found = answer->second.shares.find(phone);
    if (found != answer->second.shares.end()) shares.push_back({static_cast<uint8_t>(place + 1), &found->second});
  }
  const std::string& name = cohort.phones()[phone].phone;
  if (shares.size() < needed) {
    refuse("phone " + name + ": " + std::to_string(needed) + " shares of its secret expected, found " +
           std::to_string(shares.size()));
  }
  // Windows of shares, until one has no wrong share; what the others then give says which shares were wrong.
  for (size_t first = 0; first < shares.size(); ++first) {
    std::vector<Share> some;
    for (size_t i = 0; i < needed; ++i) some.push_back(shares[(first + i) % shares.size()]);
    Secret<32> secret = join_shares(some);
    if (!fits(secret)) continue;
    for (size_t i = needed; first != 0 && i < shares.size(); ++i) {
      some.back() = shares[(first + i) % shares.size()];
      if (!fits(join_shares(some))) wrong.insert(holders[some.back().place - 1]);
    }
    return secret;
  }
  refuse("phone " + name + ": the shares of its secret do not fit each other");
}

// What takes the masks out of the sum.
std::vector<Mask> masks_of(const Cohort& cohort, const std::map<size_t, Answer>& answers, std::set<size_t>& wrong) {
  std::vector<Mask> masks;
  for (const size_t phone : cohort.members()) {
    const Keys& keys = cohort.phones()[phone];
    if (cohort.is_alive(phone)) {
      const auto fits = [&](const Secret<32>& self) { return cohort.is_self_mask(phone, self); };
      const auto own = answers.find(phone);
      masks.push_back(own != answers.end() ? self_mask(cohort, own->second.self)
                                           : self_mask(cohort, join_secret(cohort, answers, phone, fits, wrong)));
      masks.back().subtract = true;
      continue;
    }
    const auto fits = [&](const Secret<32>& secret) { return to_hex(x25519_public(secret)) == keys.masking; };
    const Secret<32> secret = join_secret(cohort, answers, phone, fits, wrong);
    for (const size_t other : cohort.masks_with(phone)) {
      // What the dead phone would have added is what the living one's mask lacks.
      if (cohort.is_alive(other)) masks.push_back(pair_mask(cohort, secret, phone, other));
    }
  }
  return masks;
}

}  // namespace

MaskedSum::MaskedSum(size_t values, int width, int threads) : sums_(values), width_(width), pool_(threads, false) {}

// work(tile, its values, their number) for every tile, by any thread.
template <typename Work>
void MaskedSum::for_tiles(Work work) {
  const size_t tiles = (sums_.size() + kMaskTile - 1) / kMaskTile;
  pool_.for_each(static_cast<int64_t>(tiles), [&](int64_t item, int) {
    const size_t tile = static_cast<size_t>(item), start = tile * kMaskTile;
    work(tile, sums_.data() + start, std::min(kMaskTile, sums_.size() - start));
  });
}

void MaskedSum::add(const TensorFile& file) {
  const unsigned char* bytes = file.data(file.at("values"));
  for_tiles([&](size_t tile, uint32_t* sums, size_t count) {
    thread_local uint32_t values[kMaskTile];
    unpack(bytes + packed_bytes(tile * kMaskTile, width_), count, width_, values);
    for (size_t i = 0; i < count; ++i) sums[i] += values[i];
  });
}

void MaskedSum::add(GridUpdate& grid) {
  if (grid.shape().values() != static_cast<int64_t>(sums_.size()) || grid.shape().width != width_) {
    refuse("grid update: " + std::to_string(sums_.size()) + " values of " + std::to_string(width_) + " bits expected");
  }
  grid.draw_noise();
  for_tiles([&](size_t tile, uint32_t* sums, size_t count) {
    thread_local uint32_t values[kMaskTile];
    grid.read(tile * kMaskTile, count, values);
    for (size_t i = 0; i < count; ++i) sums[i] += values[i];
  });
}

std::set<size_t> MaskedSum::unmask(const Cohort& cohort, const std::map<size_t, Answer>& answers) {
  std::set<size_t> wrong;
  const std::vector<Mask> masks = masks_of(cohort, answers, wrong);
  const int unused = 32 - width_;
  for_tiles([&](size_t tile, uint32_t* sums, size_t count) {
    add_masks(masks, width_, tile, sums, count);
    for (size_t i = 0; i < count; ++i) {
      sums[i] = static_cast<uint32_t>(static_cast<int32_t>(sums[i] << unused) >> unused);
    }
  });
  check(cohort);
  return wrong;
}

// Throws unless the values are possible ones.
void MaskedSum::check(const Cohort& cohort) {
  const MaskedSettings& settings = cohort.settings();
  const auto phones = static_cast<int64_t>(cohort.alive().size());
  const int64_t weight = sums()[sums_.size() - 1];
  std::atomic<bool> possible{weight >= phones && weight <= phones * settings.weight_cap};
  const GridShape shape(settings, static_cast<int64_t>(sums_.size() - 1) * settings.support);
  const auto most = static_cast<int32_t>(shape.largest_sum(phones, weight));
  for_tiles([&](size_t tile, uint32_t* values, size_t count) {
    const size_t codes = std::min(count, sums_.size() - 1 - tile * kMaskTile);
    bool good = true;
    for (size_t i = 0; i < codes; ++i) {
      const auto value = static_cast<int32_t>(values[i]);
      good &= value >= -most && value <= most;
    }
    if (!good) possible = false;
  });
  if (!possible)
    refuse("the sum of the masked updates is no sum of codes: a phone sent something else than its masks hide");
}

}  // namespace phonograd
