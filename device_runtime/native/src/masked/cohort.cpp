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
  id_ = cohort_ = hash_of(text);
  numbers_.clear(), members_.clear(), alive_.clear();
}

size_t Cohort::place_of(const std::string& phone) const {
  const auto found = places_.find(phone);
  if (found == places_.end()) refuse("phone " + phone + ": is not in the cohort");
  return found->second;
}

void Cohort::check_draw(size_t phone, const json::Value& message) const {
  const std::string& draw = text_in(message, "draw");
  std::array<uint8_t, 32> bytes;
  const Keys& keys = phones_.at(phone);
  if (!from_hex(draw, bytes.data(), bytes.size()) || hash_of(std::string(bytes.begin(), bytes.end())) != keys.draw) {
    refuse("phone " + keys.phone + ": its draw is not the one that it announced");
  }
}

void Cohort::set_draws(const std::map<std::string, std::string>& draws) {
  std::vector<std::optional<uint64_t>> numbers(phones_.size());
  const std::string cohort = to_hex(cohort_);
  std::string text = "phonograd-draws-1\n" + cohort + "\n";
  for (const auto& [name, draw] : draws) {
    const size_t phone = place_of(name);
    check_draw(phone, json::Value(json::Object{{"draw", json::Value(draw)}}));
    numbers[phone] = first_word(hash_of("phonograd-number-1\n" + cohort + "\n" + draw + "\n").data());
    text += name + " " + draw + "\n";
  }
  numbers_ = std::move(numbers);
  id_ = hash_of(text);
}

bool Cohort::are_neighbours(size_t one, size_t other) const {
  return one != other && has_drawn(one) && has_drawn(other) &&
         phonograd::are_neighbours(rule_, *numbers_[one], *numbers_[other]);
}

std::vector<size_t> Cohort::holders_of(size_t phone) const {
  std::vector<size_t> holders;
  for (size_t other = 0; other < phones_.size() && holders.size() < kMostHolders; ++other) {
    if (are_neighbours(phone, other)) holders.push_back(other);
  }
  return holders;
}

void Cohort::check_shares(size_t phone, const json::Value& message) const {
  const std::string& name = phones_.at(phone).phone;
  if (!has_drawn(phone)) refuse("phone " + name + ": shares, but no draw");
  const std::vector<size_t> holders = holders_of(phone);
  const std::map<std::string, std::string> shares = texts_in(message.find("shares"), "shares");
  for (const size_t holder : holders) {
    const auto found = shares.find(phones_[holder].phone);
    if (found == shares.end()) refuse("phone " + name + ": no share for " + phones_[holder].phone + ", its neighbour");
    std::array<uint8_t, kSealedBytes> sealed;
    if (!from_hex(found->second, sealed.data(), sealed.size())) {
      refuse("phone " + name + ": the share for " + found->first + ": " + std::to_string(sealed.size()) +
             " bytes in hex expected");
    }
  }
  if (shares.size() != holders.size()) refuse("phone " + name + ": shares for phones that are no neighbours of it");
}

// Places of different phones.
std::set<size_t> Cohort::places_in(const json::Value& names, const std::string& what) const {
  std::set<size_t> places;
  for (const json::Value& one : list_in(names, what.c_str())) {
    const std::string* name = one.as<std::string>();
    if (name == nullptr) refuse(what + ": names expected");
    if (!places.insert(place_of(*name)).second) refuse("phone " + *name + ": listed twice");
  }
  return places;
}

void Cohort::set_members(const json::Value& names) {
  const std::set<size_t> members = places_in(names, "members");
  for (const size_t phone : members) {
    if (!has_drawn(phone)) refuse("phone " + phones_[phone].phone + ": a member, but told no draw");
  }
  members_.assign(members.begin(), members.end());
}

bool Cohort::is_member(size_t phone) const {
  return std::binary_search(members_.begin(), members_.end(), phone);
}

std::vector<size_t> Cohort::masks_with(size_t phone) const {
  std::vector<size_t> others;
  for (const size_t other : members_) {
    if (are_neighbours(phone, other)) others.push_back(other);
  }
  return others;
}

void Cohort::set_alive(const json::Value& names) {
  std::set<size_t> alive = places_in(names, "alive");
  for (const size_t phone : alive) {
    const std::string& name = phones_[phone].phone;
    if (!is_member(phone)) refuse("phone " + name + ": listed alive, but sent no shares");
    size_t left = 0;
    for (const size_t other : alive) left += are_neighbours(phone, other);
    // The masks with these hide its update, and some of them do not work with the server.
    if (left < rule_.threshold) {
      refuse("phone " + name + ": " + std::to_string(left) + " of its neighbours are alive, at least " +
             std::to_string(rule_.threshold) + " expected");
    }
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
