#include "masked/cohort.h"

#include <algorithm>

#include "base/error.h"
#include "formats/sha256.h"

namespace phonograd {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw Error(Status::update, message);
}

const json::Array& list_in(const json::Value& value, const char* what) {
  const json::Array* list = value.as<json::Array>();
  if (list == nullptr) refuse(std::string(what) + ": a list expected");
  return *list;
}

Hash context_of(uint64_t round, const std::string& base_sha256, const std::string& settings) {
  if (!is_sha256(base_sha256)) throw Error(Status::usage, "base_sha256: 64 lower-case hexadecimal digits expected");
  return hash_of("phonograd-masked-1\n" + std::to_string(round) + "\n" + base_sha256 + "\n" +
                 sha256_hex(settings.data(), settings.size()) + "\n");
}

}  // namespace

Cohort::Cohort(uint64_t round, const std::string& base_sha256, const std::string& settings,
               const std::optional<PublicKey>& vendor)
    : settings_(masked_settings(settings)), vendor_(vendor), context_(context_of(round, base_sha256, settings)) {}

Keys Cohort::checked_keys(const json::Value& message) const {
  Keys keys = Keys::parse(message);
  if (vendor_ && !is_signed(*vendor_, certificate_text(keys.phone, keys.identity), keys.certificate)) {
    refuse("phone " + keys.phone +
           ": a certificate by the vendor for this name and identity expected; `phonograd keys sign`");
  }
  if (!is_signed(keys.identity, keys_text(context_, keys), to_hex(keys.signature))) {
    refuse("phone " + keys.phone + ": the signature of its keys is not of this round, model and settings");
  }
  return keys;
}

void Cohort::fix(const json::Value& messages) {
  std::map<std::string, Keys> by_name;
  std::set<Hash> seen;
  for (const json::Value& message : list_in(messages, "cohort")) {
    Keys keys = checked_keys(message);
    for (const Hash* key : {&keys.identity, &keys.sealing, &keys.masking, &keys.self}) {
      if (!seen.insert(*key).second) refuse("phone " + keys.phone + ": has a key that the cohort has already");
    }
    const std::string name = keys.phone;
    if (!by_name.emplace(name, std::move(keys)).second) refuse("phone " + name + ": is in the cohort twice");
  }
  const auto count = static_cast<int64_t>(by_name.size());
  if (count < settings_.min_cohort || count > settings_.cohort) {
    refuse("cohort of " + std::to_string(count) + " phones: " + std::to_string(settings_.min_cohort) + " to " +
           std::to_string(settings_.cohort) + " expected");
  }
  rule_ = graph_rule(by_name.size(), settings_.curious, settings_.dropouts);
  std::string text = "phonograd-cohort-1\n" + to_hex(context_) + "\n";
  phones_.clear(), places_.clear();
  for (auto& [name, keys] : by_name) {
    text += name + " " + to_hex(keys.identity) + " " + keys.fields(' ');
    places_[name] = phones_.size();
    phones_.push_back(std::move(keys));
  }
  id_ = hash_of(text);
  members_.clear(), alive_.clear();
  holders_.assign(phones_.size(), {});
}

size_t Cohort::place_of(const std::string& phone) const {
  const auto found = places_.find(phone);
  if (found == places_.end()) refuse("phone " + phone + ": is not in the cohort");
  return found->second;
}

std::vector<size_t> Cohort::holders_of(size_t phone, const std::string& draw) const {
  uint64_t seed = 0;
  if (draws()) {
    const Keys& keys = phones_.at(phone);
    Signature signature;
    if (!is_signed(keys.identity, draw_text(id_), draw))
      refuse("phone " + keys.phone + ": its draw is not of this cohort");
    from_hex(draw, signature.data(), signature.size());
    const std::string bytes(signature.begin(), signature.end());
    seed = first_word(hash_of(bytes).data());
  } else if (!draw.empty()) {
    refuse("phone " + phones_.at(phone).phone + ": a draw, where everybody holds everybody's shares");
  }
  return phonograd::holders_of(phone, phones_.size(), rule_.holders, seed);
}

std::map<std::string, std::string> Cohort::checked_shares(size_t phone, const json::Value& message) const {
  const std::vector<size_t> holders = holders_of(phone, text_in(message, "draw"));
  std::map<std::string, std::string> shares = texts_in(message.find("shares"), "shares");
  const std::string& name = phones_.at(phone).phone;
  for (const size_t holder : holders) {
    const auto found = shares.find(phones_[holder].phone);
    if (found == shares.end()) refuse("phone " + name + ": no share for " + phones_[holder].phone + ", which it drew");
    std::array<uint8_t, kSealedBytes> sealed;
    if (!from_hex(found->second, sealed.data(), sealed.size())) {
      refuse("phone " + name + ": the share for " + found->first + ": " + std::to_string(sealed.size()) +
             " bytes in hex expected");
    }
  }
  if (shares.size() != holders.size()) refuse("phone " + name + ": shares for phones that it did not draw");
  return shares;
}

void Cohort::set_members(const std::map<std::string, std::string>& draws) {
  std::vector<std::vector<size_t>> holders(phones_.size());
  std::vector<size_t> members;
  for (const auto& [name, draw] : draws) {
    const size_t phone = place_of(name);
    holders[phone] = holders_of(phone, draw);
    members.push_back(phone);
  }
  std::sort(members.begin(), members.end());
  holders_ = std::move(holders), members_ = std::move(members);
}

std::vector<size_t> Cohort::masks_with(size_t phone) const {
  const auto has = [this](size_t one, size_t other) {
    const auto end = holders_[one].begin() + static_cast<ptrdiff_t>(rule_.peers);
    return std::find(holders_[one].begin(), end, other) != end;
  };
  std::vector<size_t> others;
  for (const size_t other : members_) {
    if (other != phone && (has(phone, other) || has(other, phone))) others.push_back(other);
  }
  return others;
}

void Cohort::set_alive(const json::Value& names) {
  std::set<size_t> alive;
  for (const json::Value& one : list_in(names, "alive")) {
    const std::string* name = one.as<std::string>();
    if (name == nullptr) refuse("alive: names expected");
    const size_t phone = place_of(*name);
    if (!is_member(phone)) refuse("phone " + *name + ": listed alive, but sent no shares");
    if (!alive.insert(phone).second) refuse("phone " + *name + ": listed twice");
  }
  alive_ = std::move(alive);
}

std::string Cohort::agreement() const {
  std::string list = "phonograd-list-1\n" + to_hex(id_) + "\n";
  for (const size_t phone : members_) list += phones_[phone].phone + (is_alive(phone) ? " alive\n" : " dead\n");
  return agreement_text(id_, hash_of(list));
}

bool Cohort::agrees(size_t phone, const std::string& signature) const {
  return is_signed(phones_.at(phone).identity, agreement(), signature);
}

}  // namespace phonograd
