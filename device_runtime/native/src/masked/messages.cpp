#include "masked/messages.h"

#include "base/error.h"
#include "formats/phone_name.h"
#include "formats/sha256.h"

namespace phonograd {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw Error(Status::update, message);
}

int digit(char letter) {
  if (letter >= '0' && letter <= '9') return letter - '0';
  return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

}  // namespace

std::string to_hex(const uint8_t* bytes, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    text += "0123456789abcdef"[bytes[i] >> 4];
    text += "0123456789abcdef"[bytes[i] & 15];
  }
  return text;
}

bool from_hex(const std::string& text, uint8_t* out, size_t count) {
  if (text.size() != 2 * count) return false;
  for (size_t i = 0; i < count; ++i) {
    const int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    out[i] = static_cast<uint8_t>(high << 4 | low);
  }
  return true;
}

const std::string& text_in(const json::Value& object, const char* name) {
  const json::Value* found = object.find(name);
  const std::string* text = found == nullptr ? nullptr : found->as<std::string>();
  if (text == nullptr)
    refuse(std::string("`") + name + "`: a string expected, found " + (found ? found->text() : "none"));
  return *text;
}

void hex_in(const json::Value& object, const char* name, uint8_t* out, size_t count) {
  if (from_hex(text_in(object, name), out, count)) return;
  refuse(std::string("`") + name + "`: " + std::to_string(count) + " bytes in lower-case hex expected");
}

std::map<std::string, std::string> texts_in(const json::Value* object, const std::string& what) {
  const json::Object* members = object == nullptr ? nullptr : object->as<json::Object>();
  if (members == nullptr) refuse(what + ": an object expected");
  std::map<std::string, std::string> texts;
  for (const json::Member& member : *members) {
    const std::string* text = member.value.as<std::string>();
    if (text == nullptr) refuse(what + ": `" + member.key + "`: a string expected");
    texts[member.key] = *text;
  }
  return texts;
}

uint64_t first_word(const uint8_t* bytes) {
  uint64_t word = 0;
  for (size_t i = 8; i-- > 0;) word = word << 8 | bytes[i];
  return word;
}

std::string signed_text(const Secret<32>& seed, const std::string& text) {
  return to_hex(ed25519_sign(seed, {text.data(), text.size()}));
}

bool is_signed(const PublicKey& key, const std::string& text, const std::string& signature) {
  Signature bytes;
  return from_hex(signature, bytes.data(), bytes.size()) && ed25519_verify(key, {text.data(), text.size()}, bytes);
}

Hash hash_of(const std::string& text) {
  Hash hash;
  from_hex(sha256_hex(text.data(), text.size()), hash.data(), hash.size());
  return hash;
}

Keys Keys::parse(const json::Value& message) {
  Keys keys;
  keys.phone = text_in(message, "phone");
  try {
    check_phone_name(keys.phone);
  } catch (const Error& error) {
    refuse(error.what());
  }
  keys.certificate = text_in(message, "certificate");
  Signature certificate_bytes;
  if (!keys.certificate.empty()) hex_in(message, "certificate", certificate_bytes.data(), certificate_bytes.size());
  hex_in(message, "identity", keys.identity.data(), keys.identity.size());
  hex_in(message, "sealing", keys.sealing.data(), keys.sealing.size());
  hex_in(message, "masking", keys.masking.data(), keys.masking.size());
  hex_in(message, "self", keys.self.data(), keys.self.size());
  hex_in(message, "draw", keys.draw.data(), keys.draw.size());
  hex_in(message, "signature", keys.signature.data(), keys.signature.size());
  return keys;
}

void Keys::add_to(JsonLine& message) const {
  message.text("phone", phone).text("identity", to_hex(identity)).text("certificate", certificate);
  message.text("sealing", to_hex(sealing)).text("masking", to_hex(masking)).text("self", to_hex(self));
  message.text("draw", to_hex(draw));
  message.text("signature", to_hex(signature));
}

std::string Keys::fields(char separator) const {
  return to_hex(sealing) + separator + to_hex(masking) + separator + to_hex(self) + separator + to_hex(draw) + "\n";
}

std::string certificate_text(const std::string& phone, const PublicKey& identity) {
  return "phonograd-phone-1\n" + phone + "\n" + to_hex(identity) + "\n";
}

std::string keys_text(const Hash& context, const Keys& keys) {
  return "phonograd-keys-1\n" + to_hex(context) + "\n" + keys.phone + "\n" + keys.fields('\n');
}

std::string agreement_text(const Hash& cohort, const Hash& list) {
  return "phonograd-agree-1\n" + to_hex(cohort) + "\n" + to_hex(list) + "\n";
}

}  // namespace phonograd
