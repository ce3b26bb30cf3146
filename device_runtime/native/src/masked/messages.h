// What phones send in a masked round, and the bytes that they sign. FORMAT.md, "Masked rounds".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "crypto/crypto.h"
#include "formats/json.h"
#include "formats/json_line.h"

namespace phonograd {

using Hash = std::array<uint8_t, 32>;

constexpr size_t kShareBytes = 1 + 32 + 32;  // its place, and the shares of two secrets
constexpr size_t kSealedBytes = kShareBytes + kTagBytes;

std::string to_hex(const uint8_t* bytes, size_t count);
inline std::string to_hex(const Secret<32>& bytes) {
  return to_hex(bytes.data(), bytes.size());
}
template <size_t N>
std::string to_hex(const std::array<uint8_t, N>& bytes) {
  return to_hex(bytes.data(), N);
}
// Whether the text is exactly `count` bytes in lower-case hex; then they are in `out`.
bool from_hex(const std::string& text, uint8_t* out, size_t count);

// A member of an object that is a string of so many bytes in hex. Throws Error(update), which names it.
void hex_in(const json::Value& object, const char* name, uint8_t* out, size_t count);
// Any string. Throws Error(update).
const std::string& text_in(const json::Value& object, const char* name);
// An object's members, all strings, in the order of their keys' bytes. Throws Error(update); `what` names it.
std::map<std::string, std::string> texts_in(const json::Value* object, const std::string& what);

// The first 8 bytes, little endian.
uint64_t first_word(const uint8_t* bytes);

// The signature of a text in hex; whether one is that of this key.
std::string signed_text(const Secret<32>& seed, const std::string& text);
bool is_signed(const PublicKey& key, const std::string& text, const std::string& signature);

// The hash of some lines.
Hash hash_of(const std::string& text);

// A phone's keys of a round.
struct Keys {
  std::string phone;
  PublicKey identity{};
  std::string certificate;  // hex; "": none
  PublicKey sealing{}, masking{};
  Hash self{}, draw{};  // of its self mask and its draw
  Signature signature{};

  // Throws Error(update) for a message of another form; signatures are not looked at.
  static Keys parse(const json::Value& message);
  void add_to(JsonLine& message) const;
  // The fields that are signed, each as its message has it, `separator` between them.
  std::string fields(char separator) const;
};

// What is signed.
std::string certificate_text(const std::string& phone, const PublicKey& identity);
std::string keys_text(const Hash& context, const Keys& keys);
std::string agreement_text(const Hash& cohort, const Hash& list);

}  // namespace phonograd
