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

bool is_self(const Cohort& cohort, size_t phone, const Secret<32>& b) {
  return hash_of({reinterpret_cast<const char*>(b.data()), b.size()}) == cohort.phones()[phone].self;
}

// Puts secrets together from the answers, and finds those whose shares are wrong.
class Secrets {
 public:
  Secrets(const Cohort& cohort, const std::map<size_t, Answer>& answers) : cohort_(cohort), answers_(answers) {}

  // The self mask of one that is alive, which it tells itself, or whose holders do.
  Mask self(size_t phone) {
    if (const auto own = answers_.find(phone); own != answers_.end()) return self_mask(cohort_, own->second.self);
    return self_mask(cohort_, joined(phone, [&](const Secret<32>& b) { return is_self(cohort_, phone, b); }));
  }

  // The masking key of one that is dead.
  Secret<32> masking(size_t phone) {
    return joined(phone,
                  [&](const Secret<32>& secret) { return x25519_public(secret) == cohort_.phones()[phone].masking; });
  }

  std::vector<std::string> wrong() const {
    std::vector<std::string> names;
    for (const size_t phone : wrong_) names.push_back(cohort_.phones()[phone].phone);
    return names;
  }

 private:
  template <typename Fits>
  Secret<32> joined(size_t phone, Fits fits) {
    const size_t needed = cohort_.rule().threshold;
    const std::vector<size_t> holders = cohort_.holders_of(phone);
    std::vector<Share> shares;
    std::vector<size_t> from;
    for (size_t place = 0; place < holders.size(); ++place) {
      const auto answer = answers_.find(holders[place]);
      if (answer == answers_.end()) continue;
      const auto found = answer->second.shares.find(phone);
      if (found == answer->second.shares.end()) continue;
      shares.push_back({static_cast<uint8_t>(place + 1), &found->second});
      from.push_back(holders[place]);
    }
    const std::string& name = cohort_.phones()[phone].phone;
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
      if (first == 0) return secret;
      for (size_t i = 0; i < shares.size(); ++i) {
        std::vector<Share> with = some;
        const bool used = (i + shares.size() - first) % shares.size() < needed;
        if (used) continue;
        with.back() = shares[i];
        if (!fits(join_shares(with))) wrong_.insert(from[i]);
      }
      return secret;
    }
    refuse("phone " + name + ": the shares of its secret do not fit each other");
  }

  const Cohort& cohort_;
  const std::map<size_t, Answer>& answers_;
  std::set<size_t> wrong_;
};

// What takes the masks out of the sum.
std::vector<Mask> masks_of(const Cohort& cohort, Secrets& secrets) {
  std::vector<Mask> masks;
  for (const size_t phone : cohort.members()) {
    if (cohort.is_alive(phone)) {
      masks.push_back(secrets.self(phone));
      masks.back().subtract = true;
      continue;
    }
    const Secret<32> secret = secrets.masking(phone);
    for (const size_t other : cohort.masks_with(phone)) {
      // What the dead phone would have added is what the living one's mask lacks.
      if (cohort.is_alive(other))
        masks.push_back(pair_mask(cohort, phone, other, secret, cohort.phones()[other].masking));
    }
  }
  return masks;
}

}  // namespace

Answer Answer::parse(const Cohort& cohort, size_t phone, const json::Value& message) {
  const std::string& name = cohort.phones().at(phone).phone;
  if (!cohort.is_alive(phone)) refuse("phone " + name + ": is not on the list of those who are alive");
  Answer answer;
  hex_in(message, "self", answer.self.data(), answer.self.size());
  if (!is_self(cohort, phone, answer.self)) refuse("phone " + name + ": another self mask than the one it announced");
  for (const auto& [of, share] : texts_in(message.find("shares"), "shares")) {
    const size_t member = cohort.place_of(of);
    const auto holders = cohort.holders_of(member);
    if (std::find(holders.begin(), holders.end(), phone) == holders.end()) {
      refuse("phone " + name + ": holds no share of " + of);
    }
    if (!from_hex(share, answer.shares[member].data(), 32)) {
      refuse("phone " + name + ": the share of " + of + ": 32 bytes in hex expected");
    }
  }
  return answer;
}

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

void MaskedSum::add(const MaskedFile& file) {
  for_tiles([&](size_t tile, uint32_t* sums, size_t count) {
    thread_local uint32_t values[kMaskTile];
    unpack(file.bytes() + packed_bytes(tile * kMaskTile, width_), count, width_, values);
    for (size_t i = 0; i < count; ++i) sums[i] += values[i];
  });
}

void MaskedSum::add(const GridUpdate& grid) {
  if (grid.shape().values() != static_cast<int64_t>(sums_.size()) || grid.shape().width != width_) {
    refuse("grid update: " + std::to_string(sums_.size()) + " values of " + std::to_string(width_) + " bits expected");
  }
  const SentGrid sent(grid);
  for_tiles([&](size_t tile, uint32_t* sums, size_t count) {
    thread_local uint32_t values[kMaskTile];
    sent.read(tile * kMaskTile, count, values);
    for (size_t i = 0; i < count; ++i) sums[i] += values[i];
  });
}

Unmasked MaskedSum::unmask(const Cohort& cohort, const std::map<size_t, Answer>& answers) {
  Secrets secrets(cohort, answers);
  const std::vector<Mask> masks = masks_of(cohort, secrets);
  const int unused = 32 - width_;
  for_tiles([&](size_t tile, uint32_t* sums, size_t count) {
    add_masks(masks, width_, tile, sums, count);
    for (size_t i = 0; i < count; ++i) {
      sums[i] = static_cast<uint32_t>(static_cast<int32_t>(sums[i] << unused) >> unused);
    }
  });
  return {secrets.wrong(), check(cohort)};
}

// The weight of the sum, whose values must be possible ones.
int64_t MaskedSum::check(const Cohort& cohort) {
  const MaskedSettings& settings = cohort.settings();
  const auto phones = static_cast<int64_t>(cohort.alive().size());
  const int64_t weight = sums()[sums_.size() - 1];
  std::atomic<bool> possible{weight >= phones && weight <= phones * settings.weight_cap};
  const GridShape shape(settings, static_cast<int64_t>(sums_.size() - 1) * settings.support);
  const auto most = static_cast<int32_t>(shape.largest_sum(phones, weight));
  for_tiles([&](size_t tile, uint32_t* values, size_t count) {
    const size_t codes = std::min(count, sums_.size() - 1 - std::min(sums_.size() - 1, tile * kMaskTile));
    bool good = true;
    for (size_t i = 0; i < codes; ++i) {
      const auto value = static_cast<int32_t>(values[i]);
      good &= value >= -most && value <= most;
    }
    if (!good) possible = false;
  });
  if (!possible)
    refuse("the sum of the masked updates is none of codes: a phone sent something else than its masks hide");
  return weight;
}

}  // namespace phonograd
