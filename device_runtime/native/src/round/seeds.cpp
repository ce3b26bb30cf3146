#include "round/seeds.h"

#include <optional>

#include "base/error.h"
#include "base/random_bytes.h"
#include "formats/sha256.h"

namespace phonograd {
namespace {

constexpr int kSeedBytes = 7;  // at most 17 digits: update files hold 18

// A seed of so many random bytes.
uint64_t random_seed(int bytes) {
  uint64_t seed;
  random_bytes(&seed, sizeof seed);
  return seed >> (64 - 8 * bytes);
}

// A number of the state that the round resumes from.
std::optional<uint64_t> saved_number(const RoundSettings& settings, const StateFolder* folder, const char* name) {
  if (folder == nullptr || settings.restart) return std::nullopt;
  return folder->saved_number(name);
}

}  // namespace

uint64_t seed_of(const std::string& base_sha256, uint64_t round, const std::string& phone) {
  const std::string rule = base_sha256 + " " + std::to_string(round) + " " + phone;
  return std::stoull(sha256_hex(rule.data(), rule.size()).substr(0, 2 * kSeedBytes), nullptr, 16);
}

uint64_t training_seed(const RoundSettings& settings, const Manifest& manifest, const StateFolder* folder) {
  if (settings.seed) return *settings.seed;
  if (!settings.phone.empty()) {
    const std::string base =
        settings.weights.empty() ? manifest.weights_sha256 : sha256_of_file(settings.weights, Status::weights);
    return seed_of(base, settings.round, settings.phone);
  }
  const std::optional<uint64_t> before = saved_number(settings, folder, "seed");
  return before ? *before : random_seed(kSeedBytes);
}

SampleDraw sample_draw(const RoundSettings& settings, const StateFolder* folder) {
  SampleDraw draw;
  draw.drawn = settings.output_sample;
  if (draw.drawn == 0) return draw;
  const std::optional<uint64_t> before = saved_number(settings, folder, "sample_seed");
  draw.seed = settings.sample_seed ? *settings.sample_seed : before ? *before : random_seed(sizeof draw.seed);
  return draw;
}

}  // namespace phonograd
