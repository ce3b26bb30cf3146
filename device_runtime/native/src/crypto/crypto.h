// The cryptography of masked rounds: key agreement, signatures, key derivation and sealed messages. The primitives are
// those of Zig's standard library (primitives.zig); ChaCha20's keystream for masks is a kernel (kernels/kernel_set.h).
//
// All functions are thread-safe, keep nothing, and read and write only what they are given. The primitives are written
// so that time and memory accesses depend on no secret but its length. Secrets are in Secret, which wipes itself; a
// primitive's own variables on the stack are not wiped. Nothing here throws but random_secret().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/random_bytes.h"
#include "base/secret.h"

namespace phonograd {

using PublicKey = std::array<uint8_t, 32>;
using Signature = std::array<uint8_t, 64>;
using Nonce = std::array<uint8_t, 12>;
constexpr size_t kTagBytes = 16;  // that a sealed message is longer

// Bytes of the caller's; `data` may be nullptr if there are none.
struct Bytes {
  const void* data;
  size_t size;
};

// N random bytes. Throws Error(unsupported) if the system has none.
template <size_t N>
Secret<N> random_secret() {
  Secret<N> secret;
  random_bytes(secret.data(), N);
  return secret;
}

// X25519 (RFC 7748). Any 32 bytes are a secret.
PublicKey x25519_public(const Secret<32>& secret);
// What both sides compute, each of its own secret and the other's public key; hash it before use (hkdf_sha256). False,
// and `shared` all zeros, for a public key of low order, which would make it the same for every secret.
[[nodiscard]] bool x25519_shared(const Secret<32>& secret, const PublicKey& other, Secret<32>& shared);

// Ed25519 (RFC 8032). The seed, any 32 bytes, is the whole secret key.
PublicKey ed25519_public(const Secret<32>& seed);
Signature ed25519_sign(const Secret<32>& seed, Bytes message);
// Strictly: false, too, for keys and signatures that are not in their one canonical form or of low order; the equation
// is the one without the cofactor.
[[nodiscard]] bool ed25519_verify(const PublicKey& key, Bytes message, const Signature& signature);

// HKDF-SHA256 (RFC 5869), extract and expand; at most 255 * 32 bytes. Without a salt: {nullptr, 0}.
void hkdf_sha256(Bytes secret, Bytes salt, Bytes info, uint8_t* out, size_t bytes);
template <size_t N>
Secret<N> hkdf_sha256(Bytes secret, Bytes salt, Bytes info) {
  static_assert(N <= 255 * 32, "more than HKDF-SHA256 gives");
  Secret<N> out;
  hkdf_sha256(secret, salt, info, out.data(), N);
  return out;
}

// ChaCha20-Poly1305 (RFC 8439). A key must see each nonce once only. sealed: plain.size + kTagBytes bytes, may begin
// where `plain` does. associated: what is authenticated and not sealed.
void seal(const Secret<32>& key, const Nonce& nonce, Bytes associated, Bytes plain, uint8_t* sealed);
// False if the message, the associated bytes or the nonce are not what was sealed by this key; `plain` is not written
// then. plain: sealed.size - kTagBytes bytes, may begin where `sealed` does.
[[nodiscard]] bool open_sealed(const Secret<32>& key, const Nonce& nonce, Bytes associated, Bytes sealed,
                               uint8_t* plain);

// Whether two secrets are the same, in a time that does not tell where they differ.
[[nodiscard]] bool equal(const Secret<32>& a, const Secret<32>& b);

}  // namespace phonograd
