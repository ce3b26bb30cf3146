#include "masked/phone_states.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/thread_pool.h"
#include "formats/json_line.h"
#include "masked/masked_file.h"
#include "masked/masks.h"
#include "masked/shamir.h"

namespace phonograd {
namespace {

constexpr Nonce kOnce{};  // a key seals one message

[[noreturn]] void refuse(const std::string& message) {
  throw Error(Status::update, "the server's answer: " + message + "; this phone leaves the round");
}

// A message of this phone, in this round.
JsonLine message_of(const PhonePart& part) {
  return JsonLine().integer("round", static_cast<int64_t>(part.settings.round)).text("phone", part.settings.phone);
}

PhoneRequest sent(const char* stage, const JsonLine& message) {
  return {PhoneRequest::Action::send, std::string("/v1/masked/") + stage, message.str()};
}

std::string object_of(const std::map<std::string, std::string>& texts) {
  JsonLine line;
  for (const auto& [key, value] : texts) line.text(key.c_str(), value);
  return line.str();
}

void require_phones(const PhonePart& part, size_t count, const char* what) {
  const auto least = std::max(part.settings.min_cohort, part.cohort.settings().min_cohort);
  if (static_cast<int64_t>(count) >= least) return;
  refuse(std::to_string(count) + " phones " + what + ", at least " + std::to_string(least) + " expected");
}

// The key that seals shares from one phone to another, from this phone's secret and the other's public key.
Secret<32> sealing_key(const PhonePart& part, size_t from, size_t to) {
  const auto& phones = part.cohort.phones();
  Secret<32> shared;
  if (!x25519_shared(part.sealing, phones[from == part.place ? to : from].sealing, shared)) {
    refuse("phone " + phones[to].phone + ": its sealing key is no key");
  }
  const std::string info = "phonograd-seal-1\n" + phones[from].phone + "\n" + phones[to].phone + "\n";
  return hkdf_sha256<32>({shared.data(), shared.size()}, {part.cohort.id().data(), 32}, {info.data(), info.size()});
}

class KeysState final : public PhoneState {
 public:
  const char* name() const override { return "keys"; }

  PhoneRequest request(PhonePart& part) const override {
    Keys keys;
    keys.phone = part.settings.phone;
    keys.identity = ed25519_public(part.identity);
    keys.certificate = part.settings.certificate;
    keys.sealing = x25519_public(part.sealing);
    keys.masking = x25519_public(part.masking);
    keys.self = hash_of({reinterpret_cast<const char*>(part.self.data()), part.self.size()});
    keys.draw = hash_of({reinterpret_cast<const char*>(part.draw.data()), part.draw.size()});
    const std::string text = keys_text(part.cohort.context(), keys);
    keys.signature = ed25519_sign(part.identity, {text.data(), text.size()});
    JsonLine message;
    message.integer("round", static_cast<int64_t>(part.settings.round));
    keys.add_to(message);
    return sent(name(), message);
  }

  void take(PhonePart& part, const json::Value& answer) const override {
    const json::Value* cohort = answer.find("cohort");
    if (cohort == nullptr) refuse("`cohort` expected");
    part.cohort.fix(*cohort);
    require_phones(part, part.cohort.phones().size(), "in the cohort");
    part.place = part.cohort.place_of(part.settings.phone);
    const Keys& own = part.cohort.phones()[part.place];
    if (own.sealing != x25519_public(part.sealing) || own.masking != x25519_public(part.masking)) {
      refuse("the cohort has other keys of this phone");
    }
    for (const Keys& keys : part.cohort.phones()) {
      if (part.settings.vendor) break;
      const std::string& first = part.known.emplace(keys.phone, to_hex(keys.identity)).first->second;
      if (first != to_hex(keys.identity)) refuse("phone " + keys.phone + " has another identity than before");
    }
  }
};

class DrawsState final : public PhoneState {
 public:
  const char* name() const override { return "draws"; }

  PhoneRequest request(PhonePart& part) const override {
    JsonLine message = message_of(part);
    return sent(name(), message.text("draw", to_hex(part.draw)));
  }

  void take(PhonePart& part, const json::Value& answer) const override {
    const auto draws = texts_in(answer.find("draws"), "draws");
    const auto own = draws.find(part.settings.phone);
    if (own == draws.end() || own->second != to_hex(part.draw)) refuse("this phone's draw is missing, or another one");
    require_phones(part, draws.size(), "told their draws");
    part.cohort.set_draws(draws);
  }
};

class SharesState final : public PhoneState {
 public:
  const char* name() const override { return "shares"; }

  PhoneRequest request(PhonePart& part) const override {
    const Cohort& cohort = part.cohort;
    const std::vector<size_t> holders = cohort.holders_of(part.place);
    const size_t threshold = cohort.rule().threshold;
    const auto of_masking = split_secret(part.masking, threshold, holders.size());
    const auto of_self = split_secret(part.self, threshold, holders.size());
    std::map<std::string, std::string> sealed;
    for (size_t i = 0; i < holders.size(); ++i) {
      Secret<kShareBytes> plain;
      plain.data()[0] = static_cast<uint8_t>(i + 1);
      std::memcpy(plain.data() + 1, of_masking[i].data(), 32);
      std::memcpy(plain.data() + 33, of_self[i].data(), 32);
      std::array<uint8_t, kSealedBytes> bytes;
      seal(sealing_key(part, part.place, holders[i]), kOnce, {}, {plain.data(), plain.size()}, bytes.data());
      sealed[cohort.phones()[holders[i]].phone] = to_hex(bytes);
    }
    JsonLine message = message_of(part);
    return sent(name(), message.raw("shares", object_of(sealed)));
  }

  void take(PhonePart& part, const json::Value& answer) const override {
    Cohort& cohort = part.cohort;
    const json::Value* members = answer.find("members");
    if (members == nullptr) refuse("`members` expected");
    cohort.set_members(*members);
    require_phones(part, cohort.members().size(), "sent shares");
    if (!cohort.is_member(part.place)) refuse("this phone is no member, although its shares were accepted");
    for (const auto& [name, hex] : texts_in(answer.find("shares"), "shares")) take_share(part, name, hex);
  }

 private:
  // One that does not fit is its sender's fault, and the others go on without it.
  static void take_share(PhonePart& part, const std::string& name, const std::string& hex) {
    const size_t from = part.cohort.place_of(name);
    const auto holders = part.cohort.holders_of(from);
    const auto place = std::find(holders.begin(), holders.end(), part.place);
    std::array<uint8_t, kSealedBytes> sealed;
    Secret<kShareBytes> plain;
    if (!part.cohort.is_member(from) || place == holders.end() || !from_hex(hex, sealed.data(), sealed.size())) return;
    if (!open_sealed(sealing_key(part, from, part.place), kOnce, {}, {sealed.data(), sealed.size()}, plain.data()))
      return;
    if (plain.data()[0] != place - holders.begin() + 1) return;
    PhonePart::Held& held = part.held[from];
    std::memcpy(held.masking.data(), plain.data() + 1, 32);
    std::memcpy(held.self.data(), plain.data() + 33, 32);
  }
};

class UploadState final : public PhoneState {
 public:
  const char* name() const override { return "upload"; }

  PhoneRequest request(PhonePart& part) const override {
    const Cohort& cohort = part.cohort;
    std::vector<Mask> masks;
    masks.push_back(self_mask(cohort, part.self));
    for (const size_t other : cohort.masks_with(part.place)) {
      masks.push_back(pair_mask(cohort, part.place, other, part.masking, cohort.phones()[other].masking));
    }
    write(part, masks);
    return {PhoneRequest::Action::upload, part.masked_file(), ""};
  }

  void take(PhonePart&, const json::Value&) const override {}

 private:
  static void write(const PhonePart& part, const std::vector<Mask>& masks) {
    const auto values = static_cast<size_t>(part.grid.shape().values());
    const int width = part.grid.shape().width;
    const MaskedInfo info{part.grid.info().base_sha256, part.settings.round, part.cohort.id(), width};
    const SentGrid sent(part.grid);
    ThreadPool pool(part.settings.threads, false);
    const auto at_once = static_cast<size_t>(pool.threads()) * kMaskTile;
    std::vector<uint32_t> piece(std::min(at_once, values));
    std::vector<uint8_t> bytes(packed_bytes(piece.size(), width));
    AtomicFile file(part.masked_file(), 0600);
    stream_tensor_file(
        file, masked_specs(values, width), masked_metadata(info), true, [&](const TensorSpec&, const Sink& sink) {
          for (size_t start = 0; start < values; start += piece.size()) {
            const size_t some = std::min(piece.size(), values - start);
            pool.for_each(static_cast<int64_t>((some + kMaskTile - 1) / kMaskTile), [&](int64_t item, int) {
              const size_t at = static_cast<size_t>(item) * kMaskTile, count = std::min(kMaskTile, some - at);
              sent.read(start + at, count, piece.data() + at);
              add_masks(masks, width, (start + at) / kMaskTile, piece.data() + at, count);
              pack(piece.data() + at, count, width, bytes.data() + packed_bytes(at, width));
            });
            sink(bytes.data(), packed_bytes(some, width));
          }
        });
    wipe(piece.data(), piece.size() * sizeof piece[0]);
    file.commit();
  }
};

class ListState final : public PhoneState {
 public:
  const char* name() const override { return "list"; }

  PhoneRequest request(PhonePart& part) const override { return sent(name(), message_of(part)); }

  void take(PhonePart& part, const json::Value& answer) const override {
    const json::Value* alive = answer.find("alive");
    if (alive == nullptr) refuse("`alive` expected");
    part.cohort.set_alive(*alive);
    require_phones(part, part.cohort.alive().size(), "are alive");
    if (!part.cohort.is_alive(part.place)) refuse("this phone is listed dead, although its update was accepted");
  }
};

class AgreementState final : public PhoneState {
 public:
  const char* name() const override { return "agreement"; }

  PhoneRequest request(PhonePart& part) const override {
    JsonLine message = message_of(part);
    return sent(name(), message.text("signature", signed_text(part.identity, part.cohort.agreement())));
  }

  void take(PhonePart& part, const json::Value& answer) const override {
    size_t agree = 0;
    for (const auto& [name, signature] : texts_in(answer.find("signatures"), "signatures")) {
      const size_t phone = part.cohort.place_of(name);
      agree += part.cohort.is_alive(phone) && part.cohort.agrees(phone, signature);
    }
    const size_t needed = part.cohort.rule().agree;
    if (agree < needed) {
      refuse(std::to_string(agree) + " phones agree on who is alive, " + std::to_string(needed) + " expected");
    }
  }
};

class AnswerState final : public PhoneState {
 public:
  const char* name() const override { return "answer"; }

  // Of each other phone one share, never both.
  PhoneRequest request(PhonePart& part) const override {
    std::map<std::string, std::string> shares;
    for (const auto& [phone, held] : part.held) {
      shares[part.cohort.phones()[phone].phone] = to_hex(part.cohort.is_alive(phone) ? held.self : held.masking);
    }
    JsonLine message = message_of(part);
    return sent(name(), message.text("self", to_hex(part.self)).raw("shares", object_of(shares)));
  }

  void take(PhonePart&, const json::Value&) const override {}
};

}  // namespace

const std::array<std::unique_ptr<PhoneState>, 7>& phone_states() {
  static const std::array<std::unique_ptr<PhoneState>, 7> states = {
      std::make_unique<KeysState>(),   std::make_unique<DrawsState>(), std::make_unique<SharesState>(),
      std::make_unique<UploadState>(), std::make_unique<ListState>(),  std::make_unique<AgreementState>(),
      std::make_unique<AnswerState>()};
  return states;
}

}  // namespace phonograd
