// The cryptography of masked rounds: key agreement, signatures, key derivation and sealed messages. The primitives are
// those of Zig's standard library (primitives.zig); ChaCha20's keystream for masks is a kernel (kernels/kernel_set.h).
//
// All functions are thread-safe, keep nothing, and read and write only what they are given. The primitives are written
// so that time and memory accesses depend on no secret but its length. Secrets are in Secret, which wipes itself; a
// primitive's own variables on the stack are not wiped. Nothing here throws.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/secret.h"

namespace phonograd {

using PublicKey = std::array<uint8_t, 32>;
using Signature = std::array<uint8_t, 64>;
static_assert(sizeof(PublicKey) == 32 && sizeof(Signature) == 64, "plain bytes, as primitives.zig has them");
constexpr size_t kTagBytes = 16;  // that a sealed message is longer

// Bytes of the caller's; `data` may be nullptr if there are none.
struct Bytes {
  const void* data;
  size_t size;
};
template <class Container>
Bytes bytes_of(const Container& bytes) {
  return {bytes.data(), bytes.size()};
}

extern "C" {  // primitives.zig

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

// HKDF-SHA256 (RFC 5869), extract and expand, of 32 bytes.
void hkdf_sha256(Bytes secret, Bytes salt, Bytes info, Secret<32>& key);

// ChaCha20-Poly1305 (RFC 8439) with nonce 0: a key seals one message. sealed: plain.size + kTagBytes bytes, may begin
// where `plain` does.
void seal(const Secret<32>& key, Bytes plain, uint8_t* sealed);
// False if the message is not what was sealed by this key; `plain` is not written then. plain: sealed.size - kTagBytes
// bytes, may begin where `sealed` does.
[[nodiscard]] bool open_sealed(const Secret<32>& key, Bytes sealed, uint8_t* plain);

}  // extern "C"
}  // namespace phonograd
