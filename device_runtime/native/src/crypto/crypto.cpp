#include "crypto/crypto.h"

// primitives.zig; true is success.
extern "C" {
void phonograd_x25519_public(uint8_t* key, const uint8_t* secret);
bool phonograd_x25519_shared(uint8_t* shared, const uint8_t* secret, const uint8_t* other);
void phonograd_ed25519_public(uint8_t* key, const uint8_t* seed);
void phonograd_ed25519_sign(uint8_t* signature, const uint8_t* seed, const void* message, size_t size);
bool phonograd_ed25519_verify(const uint8_t* signature, const uint8_t* key, const void* message, size_t size);
void phonograd_hkdf_sha256(uint8_t* out, size_t out_size, const void* secret, size_t secret_size, const void* salt,
                           size_t salt_size, const void* info, size_t info_size);
void phonograd_seal(uint8_t* sealed, const uint8_t* key, const uint8_t* nonce, const void* associated,
                    size_t associated_size, const void* plain, size_t plain_size);
bool phonograd_open(uint8_t* plain, size_t plain_size, const uint8_t* key, const uint8_t* nonce, const void* associated,
                    size_t associated_size, const void* sealed);
bool phonograd_equal(const uint8_t* a, const uint8_t* b);
}

namespace phonograd {

PublicKey x25519_public(const Secret<32>& secret) {
  PublicKey key;
  phonograd_x25519_public(key.data(), secret.data());
  return key;
}

bool x25519_shared(const Secret<32>& secret, const PublicKey& other, Secret<32>& shared) {
  shared = Secret<32>();
  return phonograd_x25519_shared(shared.data(), secret.data(), other.data());
}

PublicKey ed25519_public(const Secret<32>& seed) {
  PublicKey key;
  phonograd_ed25519_public(key.data(), seed.data());
  return key;
}

Signature ed25519_sign(const Secret<32>& seed, Bytes message) {
  Signature signature;
  phonograd_ed25519_sign(signature.data(), seed.data(), message.data, message.size);
  return signature;
}

bool ed25519_verify(const PublicKey& key, Bytes message, const Signature& signature) {
  return phonograd_ed25519_verify(signature.data(), key.data(), message.data, message.size);
}

void hkdf_sha256(Bytes secret, Bytes salt, Bytes info, uint8_t* out, size_t bytes) {
  phonograd_hkdf_sha256(out, bytes, secret.data, secret.size, salt.data, salt.size, info.data, info.size);
}

void seal(const Secret<32>& key, const Nonce& nonce, Bytes associated, Bytes plain, uint8_t* sealed) {
  phonograd_seal(sealed, key.data(), nonce.data(), associated.data, associated.size, plain.data, plain.size);
}

bool open_sealed(const Secret<32>& key, const Nonce& nonce, Bytes associated, Bytes sealed, uint8_t* plain) {
  if (sealed.size < kTagBytes) return false;
  return phonograd_open(plain, sealed.size - kTagBytes, key.data(), nonce.data(), associated.data, associated.size,
                        sealed.data);
}

bool equal(const Secret<32>& a, const Secret<32>& b) {
  return phonograd_equal(a.data(), b.data());
}

}  // namespace phonograd
