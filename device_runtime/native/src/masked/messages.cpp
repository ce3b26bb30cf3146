#include "masked/messages.h"

#include "base/error.h"
#include "formats/phone_name.h"

namespace phonograd {
namespace {

constexpr const char* kDigits = "0123456789abcdef";

[[noreturn]] void refuse(const std::string& message) {
  throw Error(Status::update, message);
}

}  // namespace

std::string to_hex(Bytes bytes) {
  const auto* data = static_cast<const uint8_t*>(bytes.data);
  std::string text;
  for (size_t i = 0; i < bytes.size; ++i) {
    text += kDigits[data[i] >> 4];
    text += kDigits[data[i] & 15];
  }
  return text;
}

bool is_hex(const std::string& text, size_t bytes) {
  return text.size() == 2 * bytes && text.find_first_not_of(kDigits) == std::string::npos;
}

bool from_hex(const std::string& text, uint8_t* out, size_t count) {
  if (!is_hex(text, count)) return false;
  const auto digit = [&](size_t at) { return text[at] <= '9' ? text[at] - '0' : text[at] - 'a' + 10; };
  for (size_t i = 0; i < count; ++i) out[i] = static_cast<uint8_t>(digit(2 * i) << 4 | digit(2 * i + 1));
  return true;
}

const json::Value& member_in(const json::Value& object, const char* name) {
  const json::Value* found = object.find(name);
  if (found == nullptr) refuse(std::string("`") + name + "` expected");
  return *found;
}

const json::Array& list_in(const json::Value& object, const char* name) {
  const json::Array* list = member_in(object, name).as<json::Array>();
  if (list == nullptr) refuse(std::string("`") + name + "`: a list expected");
  return *list;
}

const std::string& text_of(const json::Value& value, const std::string& name) {
  const std::string* text = value.as<std::string>();
  if (text == nullptr) refuse("`" + name + "`: a string expected, found " + value.text());
  return *text;
}

const std::string& text_in(const json::Value& object, const char* name) {
  return text_of(member_in(object, name), name);
}

const std::string& hex_in(const json::Value& object, const char* name, size_t bytes) {
  const std::string& text = text_in(object, name);
  if (is_hex(text, bytes)) return text;
  refuse(std::string("`") + name + "`: " + std::to_string(bytes) + " bytes in lower-case hex expected");
}

// An X25519 key in its one form: the last bit means nothing, and could make a copied key look like another one.
static const std::string& public_key_in(const json::Value& message, const char* name) {
  const std::string& key = hex_in(message, name, 32);
  if (key[62] > '7') refuse(std::string("`") + name + "`: an X25519 key whose last bit is 0 expected");
  return key;
}

std::map<std::string, std::string> texts_in(const json::Value& object, const char* name) {
  const json::Object* members = member_in(object, name).as<json::Object>();
  if (members == nullptr) refuse(std::string("`") + name + "`: an object expected");
  std::map<std::string, std::string> texts;
  for (const json::Member& member : *members) texts[member.key] = text_of(member.value, member.key);
  return texts;
}

std::string object_of(const std::map<std::string, std::string>& texts) {
  JsonLine line;
  for (const auto& [key, value] : texts) line.text(key.c_str(), value);
  return line.str();
}

std::string lines(std::initializer_list<std::string_view> texts) {
  std::string all;
  for (const std::string_view text : texts) (all += text) += '\n';
  return all;
}

std::string signed_text(const Secret<32>& seed, const std::string& text) {
  return to_hex(ed25519_sign(seed, bytes_of(text)));
}

bool is_signed(const std::string& key, const std::string& text, const std::string& signature) {
  PublicKey by;
  Signature bytes;
  return from_hex(key, by) && from_hex(signature, bytes) && ed25519_verify(by, bytes_of(text), bytes);
}

Keys Keys::parse(const json::Value& message) {
  Keys keys;
  keys.phone = text_in(message, "phone");
  try {
    check_phone_name(keys.phone);
  } catch (const Error& error) {
    refuse(error.what());
  }
  keys.identity = hex_in(message, "identity", 32);
  keys.certificate = text_in(message, "certificate");
  if (!keys.certificate.empty()) hex_in(message, "certificate", 64);
  keys.sealing = public_key_in(message, "sealing");
  keys.masking = public_key_in(message, "masking");
  keys.self = hex_in(message, "self", 32);
  keys.draw = hex_in(message, "draw", 32);
  keys.signature = hex_in(message, "signature", 64);
  return keys;
}

void Keys::add_to(JsonLine& message) const {
  message.text("identity", identity).text("certificate", certificate);
  message.text("sealing", sealing).text("masking", masking).text("self", self).text("draw", draw);
  message.text("signature", signature);
}

std::string Keys::row() const {
  std::string all = phone;
  for (const std::string* field : {&identity, &sealing, &masking, &self, &draw}) (all += ' ') += *field;
  return all;
}

std::string commitment(const char* kind, const std::string& context, const Keys& keys, Bytes value) {
  const std::string name = std::string("phonograd-") + kind + "-1";
  return hash_of(lines({name, context, keys.phone, keys.identity, to_hex(value)}));
}

std::string certificate_text(const std::string& phone, const std::string& identity) {
  return lines({"phonograd-phone-1", phone, identity});
}

std::string keys_text(const std::string& context, const Keys& keys) {
  return lines({"phonograd-keys-1", context, keys.phone, keys.sealing, keys.masking, keys.self, keys.draw});
}

}  // namespace phonograd
