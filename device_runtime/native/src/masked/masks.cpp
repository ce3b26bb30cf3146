#include "masked/masks.h"

#include <cstring>
#include <string>

#include "base/error.h"
#include "kernels/kernel_set.h"

namespace phonograd {

namespace {

Secret<32> derived(const Secret<32>& secret, const Hash& salt, const std::string& info) {
  return hkdf_sha256<32>({secret.data(), secret.size()}, {salt.data(), salt.size()}, {info.data(), info.size()});
}

}  // namespace

Mask pair_mask(const Cohort& cohort, size_t phone, size_t other, const Secret<32>& secret, const PublicKey& key) {
  // Names are in order: a phone's place in the cohort compares as its name does.
  const size_t first = phone < other ? phone : other, second = phone < other ? other : phone;
  const std::string info =
      "phonograd-mask-1\n" + cohort.phones()[first].phone + "\n" + cohort.phones()[second].phone + "\n";
  Secret<32> shared;
  if (!x25519_shared(secret, key, shared)) {
    throw Error(Status::update, "phone " + cohort.phones()[other].phone + ": its masking key is no key");
  }
  return {derived(shared, cohort.id(), info), phone != first};
}

Mask self_mask(const Cohort& cohort, const Secret<32>& self) {
  return {derived(self, cohort.id(), "phonograd-self-1\n"), false};
}

void add_masks(const std::vector<Mask>& masks, int width, size_t tile, uint32_t* values, size_t count) {
  const size_t word = width <= 16 ? 2 : 4;
  const auto counter = static_cast<uint32_t>(tile * kMaskTile * word / 64);
  const auto add = width <= 16 ? kernel_set().add_keystream16 : kernel_set().add_keystream32;
  const uint32_t nonce[3] = {static_cast<uint32_t>(width), 0, 0};
  for (const Mask& mask : masks) {
    uint32_t key[8];
    std::memcpy(key, mask.key.data(), sizeof key);
    add(key, nonce, counter, count, mask.subtract, values);
    wipe(key, sizeof key);
  }
}

}  // namespace phonograd
