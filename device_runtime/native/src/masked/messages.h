// What phones send in a masked round, and the bytes that they sign. Keys, hashes and signatures are in hex, as in
// messages, but where they are computed with. FORMAT.md, "Masked rounds".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>

#include "crypto/crypto.h"
#include "formats/json.h"
#include "formats/json_line.h"
#include "formats/sha256.h"

namespace phonograd {

constexpr size_t kMaskingShare = 1, kSelfShare = 33;  // where they begin in a share, behind its number
constexpr size_t kShareBytes = 65, kSealedBytes = kShareBytes + kTagBytes;

std::string to_hex(Bytes bytes);
template <class Container>
std::string to_hex(const Container& bytes) {
  return to_hex(bytes_of(bytes));
}
// Whether the text is so many bytes in lower-case hex; if so, they are in `out`.
bool is_hex(const std::string& text, size_t bytes);
bool from_hex(const std::string& text, uint8_t* out, size_t count);
template <class Container>
bool from_hex(const std::string& text, Container& out) {
  return from_hex(text, out.data(), out.size());
}

// Members of an object that comes from outside. These throw Error(update), which names what is missing or wrong.
const json::Value& member_in(const json::Value& object, const char* name);
const json::Array& list_in(const json::Value& object, const char* name);
const std::string& text_of(const json::Value& value, const std::string& name);
const std::string& text_in(const json::Value& object, const char* name);
// A string of so many bytes in hex.
const std::string& hex_in(const json::Value& object, const char* name, size_t bytes);
template <class Container>
void bytes_in(const json::Value& object, const char* name, Container& out) {
  from_hex(hex_in(object, name, out.size()), out);
}
// An object's members, all strings, in the order of their keys' bytes.
std::map<std::string, std::string> texts_in(const json::Value& object, const char* name);
std::string object_of(const std::map<std::string, std::string>& texts);

// The texts, each a line.
std::string lines(std::initializer_list<std::string_view> texts);
// The hash of some bytes, such as lines.
template <class Container>
std::string hash_of(const Container& bytes) {
  return sha256_hex(bytes.data(), bytes.size());
}
// A hash's first 8 bytes, big endian.
inline uint64_t first_word(const std::string& hash) {
  return std::stoull(hash.substr(0, 16), nullptr, 16);
}

// The signature of a text, and whether one is that of this key.
std::string signed_text(const Secret<32>& seed, const std::string& text);
bool is_signed(const std::string& key, const std::string& text, const std::string& signature);

// A phone's keys of a round; all but its name in hex, and the certificate "" if it has none.
struct Keys {
  std::string phone, identity, certificate;
  std::string sealing, masking;
  std::string self, draw;  // commitments to its self mask and to its draw
  std::string signature;

  // Throws Error(update) for a message of another form; signatures are not looked at.
  static Keys parse(const json::Value& message);
  void add_to(JsonLine& message) const;  // all but the name
  // What the cohort's hash has of it: name and keys.
  std::string row() const;
};

// The hash by which a phone announces its self mask or its draw: `kind` is self or draw. It has the phone's name and
// identity in it, so that no other phone can announce the same and repeat it once it is told.
std::string commitment(const char* kind, const std::string& context, const Keys& keys, Bytes value);

// What is signed.
std::string certificate_text(const std::string& phone, const std::string& identity);
std::string keys_text(const std::string& context, const Keys& keys);

}  // namespace phonograd
