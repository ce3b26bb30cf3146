#include "masked/masks.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "kernels/kernel_set.h"

namespace phonograd {
namespace {

Secret<32> derive_key(const Cohort& cohort, const Secret<32>& secret, const std::string& info) {
  std::array<uint8_t, 32> salt;
  from_hex(cohort.id(), salt);
  Secret<32> key;
  hkdf_sha256(bytes_of(secret), bytes_of(salt), bytes_of(info), key);
  return key;
}

}  // namespace

Secret<32> pair_key(const Cohort& cohort, const Secret<32>& secret, const std::string& key, const char* purpose,
                    size_t first, size_t second) {
  const std::string &one = cohort.phones()[first].phone, &other = cohort.phones()[second].phone;
  PublicKey bytes;
  Secret<32> shared;
  if (!from_hex(key, bytes) || !x25519_shared(secret, bytes, shared)) {
    throw Error(Status::update, "phones " + one + " and " + other + ": a public key of one of them is no key");
  }
  return derive_key(cohort, shared, lines({purpose, one, other}));
}

Mask pair_mask(const Cohort& cohort, const Secret<32>& secret, size_t phone, size_t other) {
  // Names are in order: a phone's place in the cohort compares as its name does.
  return {pair_key(cohort, secret, cohort.phones()[other].masking, "phonograd-mask-1", std::min(phone, other),
                   std::max(phone, other)),
          phone > other};
}

Mask self_mask(const Cohort& cohort, const Secret<32>& self) {
  return {derive_key(cohort, self, "phonograd-self-1\n"), false};
}

void add_masks(const std::vector<Mask>& masks, int width, size_t tile, uint32_t* values, size_t count) {
  const int bits = width <= 16 ? 16 : 32;
  const auto counter = static_cast<uint32_t>(tile * kMaskTile * static_cast<size_t>(bits) / 512);
  const auto nonce = static_cast<uint32_t>(width);
  for (const Mask& mask : masks) {
    kernel_set().add_keystream(mask.key.data(), nonce, counter, count, bits, mask.subtract, values);
  }
}

}  // namespace phonograd
