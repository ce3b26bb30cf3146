#include "phone/training_seed.h"

#include <algorithm>
#include <optional>
#include <random>

#include "base/error.h"
#include "formats/sha256.h"
#include "update/update_file.h"

namespace phonograd::phone {
namespace {

constexpr int kSeedBytes = 7;  // at most 17 digits: update files hold 18
constexpr size_t kNameLength = 64;

void require_phone_name(const std::string& name) {
  const std::string others = "._-";
  const auto allowed = [&](char byte) {
    return (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z') || (byte >= '0' && byte <= '9') ||
           others.find(byte) != std::string::npos;
  };
  if (!name.empty() && name.size() <= kNameLength && std::all_of(name.begin(), name.end(), allowed)) return;
  throw Error(Status::usage, "train: --phone: expected a name of 1 to 64 characters A-Z a-z 0-9 . _ -");
}

// Of so many random bytes.
uint64_t random_seed(int bytes) {
  std::random_device source;
  uint64_t seed = 0;
  for (int i = 0; i < bytes; ++i) seed = seed << 8 | (source() & 0xFF);
  return seed;
}

// Of the state that a run goes on from.
std::optional<uint64_t> saved(const Arguments& arguments, const StateFolder* folder, const char* name) {
  if (folder == nullptr || arguments.has("--restart")) return std::nullopt;
  return folder->saved_number(name);
}

}  // namespace

uint64_t seed_of(const std::string& base_sha256, uint64_t round, const std::string& phone) {
  const std::string rule = base_sha256 + " " + std::to_string(round) + " " + phone;
  return std::stoull(sha256_hex(rule.data(), rule.size()).substr(0, 2 * kSeedBytes), nullptr, 16);
}

void check_seed_options(const Arguments& arguments) {
  arguments.exclude("--seed", "--phone");
  arguments.integer("--seed", 0, 0, kMaxCount);
  arguments.integer("--output-sample", 0, 1, kMaxCount);
  arguments.integer("--sample-seed", 0, 0, kMaxCount);
  if (arguments.has("--phone")) require_phone_name(arguments.text("--phone"));
}

uint64_t training_seed(const Arguments& arguments, const Manifest& manifest, uint64_t round,
                       const StateFolder* folder) {
  if (arguments.has("--seed")) return static_cast<uint64_t>(arguments.integer("--seed", 0, 0, kMaxCount));
  if (arguments.has("--phone")) {
    const std::string weights = arguments.text("--weights");
    return seed_of(weights.empty() ? manifest.weights_sha256 : sha256_of_file(weights, Status::weights), round,
                   arguments.text("--phone"));
  }
  const std::optional<uint64_t> before = saved(arguments, folder, "seed");
  return before ? *before : random_seed(kSeedBytes);
}

SampleDraw sample_draw(const Arguments& arguments, const StateFolder* folder) {
  SampleDraw draw;
  draw.drawn = arguments.integer("--output-sample", 0, 1, kMaxCount);
  if (draw.drawn == 0) return draw;
  const std::optional<uint64_t> before = saved(arguments, folder, "sample_seed");
  draw.seed = before ? *before : random_seed(sizeof draw.seed);
  if (arguments.has("--sample-seed"))
    draw.seed = static_cast<uint64_t>(arguments.integer("--sample-seed", 0, 0, kMaxCount));
  return draw;
}

}  // namespace phonograd::phone
