#include "masked/phone_states.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/thread_pool.h"
#include "masked/masked_file.h"
#include "masked/masks.h"
#include "masked/shamir.h"

namespace phonograd {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw Error(Status::update, message);
}

// A message of this phone, in this round.
JsonLine message_of(const PhonePart& part) {
  return JsonLine().integer("round", static_cast<int64_t>(part.settings.round)).text("phone", part.settings.phone);
}

PhoneRequest request_of(const char* stage, const JsonLine& message) {
  return {"send", std::string("/v1/masked/") + stage, message.str()};
}

void require_phones(const PhonePart& part, size_t count, const char* what) {
  const auto least = std::max(part.settings.min_cohort, part.cohort.settings().min_cohort);
  if (static_cast<int64_t>(count) >= least) return;
  refuse(std::to_string(count) + " phones " + what + ", at least " + std::to_string(least) + " expected");
}

// What this phone announces: the same at each call.
Keys own_keys(const PhonePart& part) {
  Keys keys;
  keys.phone = part.settings.phone;
  keys.identity = public_identity(part.identity);
  keys.certificate = part.settings.certificate;
  keys.sealing = to_hex(x25519_public(part.sealing));
  keys.masking = to_hex(x25519_public(part.masking));
  keys.self = commitment("self", part.cohort.context(), keys, bytes_of(part.self));
  keys.draw = commitment("draw", part.cohort.context(), keys, bytes_of(part.draw));
  keys.signature = signed_text(part.identity, keys_text(part.cohort.context(), keys));
  return keys;
}

PhoneRequest keys_request(PhonePart& part) {
  JsonLine message = message_of(part);
  own_keys(part).add_to(message);
  return request_of("keys", message);
}

void take_cohort(PhonePart& part, const json::Value& answer) {
  part.cohort.fix("cohort", answer);
  require_phones(part, part.cohort.phones().size(), "in the cohort");
  part.place = part.cohort.place_of(part.settings.phone);
  JsonLine listed, own;
  part.cohort.phones()[part.place].add_to(listed), own_keys(part).add_to(own);
  if (listed.str() != own.str()) {
    refuse("the cohort has other keys of this phone than it sent");
  }
  if (part.settings.vendor) return;
  for (const Keys& keys : part.cohort.phones()) {
    const std::string& first = part.known.emplace(keys.phone, keys.identity).first->second;
    if (first != keys.identity) refuse("phone " + keys.phone + " has another identity than before");
  }
}

void take_draws(PhonePart& part, const json::Value& answer) {
  const auto draws = texts_in(answer, "draws");
  const auto own = draws.find(part.settings.phone);
  if (own == draws.end() || own->second != to_hex(part.draw)) refuse("this phone's draw is missing, or another one");
  require_phones(part, draws.size(), "told their draws");
  part.cohort.fix("draws", answer);
}

// The key that seals shares from one phone to another, one of which is this one.
Secret<32> sealing_key(const PhonePart& part, size_t from, size_t to) {
  const Keys& other = part.cohort.phones()[from == part.place ? to : from];
  return pair_key(part.cohort, part.sealing, other.sealing, "phonograd-seal-1", from, to);
}

PhoneRequest shares_request(PhonePart& part) {
  const Cohort& cohort = part.cohort;
  const std::vector<size_t> holders = cohort.holders_of(part.place);
  const size_t threshold = cohort.rule().threshold;
  const auto of_masking = split_secret(part.masking, threshold, holders.size());
  const auto of_self = split_secret(part.self, threshold, holders.size());
  std::map<std::string, std::string> sealed;
  for (size_t i = 0; i < holders.size(); ++i) {
    Secret<kShareBytes> plain;
    plain.data()[0] = static_cast<uint8_t>(i + 1);
    std::memcpy(plain.data() + kMaskingShare, of_masking[i].data(), 32);
    std::memcpy(plain.data() + kSelfShare, of_self[i].data(), 32);
    std::array<uint8_t, kSealedBytes> bytes;
    seal(sealing_key(part, part.place, holders[i]), bytes_of(plain), bytes.data());
    sealed[cohort.phones()[holders[i]].phone] = to_hex(bytes);
  }
  return request_of("shares", message_of(part).raw("shares", object_of(sealed)));
}

// One that does not fit is its sender's fault, and the others go on without it.
void take_share(PhonePart& part, const std::string& name, const std::string& hex) {
  const size_t from = part.cohort.place_of(name), number = part.cohort.share_number(from, part.place);
  std::array<uint8_t, kSealedBytes> sealed;
  if (!part.cohort.is_member(from) || number == 0 || !from_hex(hex, sealed)) return;
  Secret<kShareBytes> plain;
  if (!open_sealed(sealing_key(part, from, part.place), bytes_of(sealed), plain.data())) return;
  if (plain.data()[0] == number) part.held[from] = std::move(plain);
}

void take_members(PhonePart& part, const json::Value& answer) {
  part.cohort.fix("members", answer);
  require_phones(part, part.cohort.members().size(), "sent shares");
  if (!part.cohort.is_member(part.place)) refuse("this phone is no member, although its shares were accepted");
  for (const auto& [name, hex] : texts_in(answer, "shares")) take_share(part, name, hex);
}

// What binds the update to the list under which it is masked: nobody gives away this phone's self mask without it.
PhoneRequest members_request(PhonePart& part) {
  return request_of("members",
                    message_of(part).text("signature", signed_text(part.identity, part.cohort.membership())));
}

void write_masked(PhonePart& part, const std::vector<Mask>& masks) {
  const auto values = static_cast<size_t>(part.grid.shape().values());
  const int width = part.grid.shape().width;
  part.grid.draw_noise();
  ThreadPool pool(part.settings.threads, false);
  std::vector<uint32_t> piece(std::min(static_cast<size_t>(pool.threads()) * kMaskTile, values));
  std::vector<uint8_t> bytes(packed_bytes(piece.size(), width));
  AtomicFile file(part.masked_file(), 0600);
  stream_tensor_file(
      file, {masked_spec(values, width)}, masked_metadata(part.cohort, width), true,
      [&](const TensorSpec&, const Sink& sink) {
        for (size_t start = 0; start < values; start += piece.size()) {
          const size_t some = std::min(piece.size(), values - start);
          pool.for_each(static_cast<int64_t>((some + kMaskTile - 1) / kMaskTile), [&](int64_t item, int) {
            const size_t at = static_cast<size_t>(item) * kMaskTile, count = std::min(kMaskTile, some - at);
            part.grid.read(start + at, count, piece.data() + at);
            add_masks(masks, width, (start + at) / kMaskTile, piece.data() + at, count);
            pack(piece.data() + at, count, width, bytes.data() + packed_bytes(at, width));
          });
          sink(bytes.data(), packed_bytes(some, width));
        }
      });
  wipe(piece.data(), piece.size() * sizeof piece[0]);
  file.commit();
}

PhoneRequest upload_request(PhonePart& part) {
  std::vector<Mask> masks;
  masks.push_back(self_mask(part.cohort, part.self));
  for (const size_t other : part.cohort.masks_with(part.place)) {
    masks.push_back(pair_mask(part.cohort, part.masking, part.place, other));
  }
  write_masked(part, masks);
  return {"upload", part.masked_file(), ""};
}

void take_list(PhonePart& part, const json::Value& answer) {
  part.cohort.fix("alive", answer);
  require_phones(part, part.cohort.alive().size(), "are alive");
  if (!part.cohort.is_alive(part.place)) refuse("this phone is listed dead, although its update was accepted");
}

void take_agreements(PhonePart& part, const json::Value& answer) {
  size_t agree = 0;
  for (const auto& [name, signature] : texts_in(answer, "signatures")) {
    const size_t phone = part.cohort.place_of(name);
    agree += part.cohort.is_alive(phone) && part.cohort.agrees(phone, signature);
  }
  const size_t needed = part.cohort.rule().agree;
  if (agree >= needed) return;
  refuse(std::to_string(agree) + " phones agree on who is alive, " + std::to_string(needed) + " expected");
}

// Reveals one share of each other phone, never both.
PhoneRequest answer_request(PhonePart& part) {
  std::map<std::string, std::string> shares;
  for (const auto& [phone, held] : part.held) {
    const size_t at = part.cohort.is_alive(phone) ? kSelfShare : kMaskingShare;
    shares[part.cohort.phones()[phone].phone] = to_hex(Bytes{held.data() + at, 32});
  }
  return request_of("answer", message_of(part).text("self", to_hex(part.self)).raw("shares", object_of(shares)));
}

}  // namespace

const std::array<PhoneState, 8> kPhoneStates = {{
    {keys_request, take_cohort},
    {[](PhonePart& part) { return request_of("draws", message_of(part).text("draw", to_hex(part.draw))); }, take_draws},
    {shares_request, take_members},
    {members_request, [](PhonePart&, const json::Value&) {}},
    {upload_request, [](PhonePart&, const json::Value&) {}},
    {[](PhonePart& part) { return request_of("list", message_of(part)); }, take_list},
    {[](PhonePart& part) {
       const std::string signature = signed_text(part.identity, part.cohort.agreement());
       return request_of("agreement", message_of(part).text("signature", signature));
     },
     take_agreements},
    {answer_request, [](PhonePart&, const json::Value&) {}},
}};

}  // namespace phonograd
