#include "masked/cohort.h"

#include <algorithm>

#include "base/error.h"
#include "base/splitmix64.h"

namespace phonograd {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw Error(Status::update, message);
}

[[noreturn]] void refuse(const Keys& phone, const std::string& message) {
  refuse("phone " + phone.phone + ": " + message);
}

}  // namespace

Cohort::Cohort(uint64_t round, const GridInfo& grid, const std::optional<std::string>& vendor)
    : settings_(masked_settings(grid.settings)), round_(round), grid_(grid), vendor_(vendor) {
  if (!is_sha256(grid.base_sha256))
    throw Error(Status::usage, "base_sha256: 64 lower-case hexadecimal digits expected");
  if (vendor && !is_hex(*vendor, 32)) {
    throw Error(Status::usage, "vendor: a public key, 64 digits in lower-case hex, expected");
  }
  const std::string number = std::to_string(round), settings = hash_of(grid.settings);
  context_ = hash_of(lines({"phonograd-masked-1", number, grid.base_sha256, settings}));
}

Keys Cohort::keys_in(const json::Value& message) const {
  Keys keys = Keys::parse(message);
  if (vendor_ && !is_signed(*vendor_, certificate_text(keys.phone, keys.identity), keys.certificate)) {
    refuse(keys,
           "a certificate by the vendor for this name and identity expected; `phonograd keys sign`, or another "
           "vendor's key here");
  }
  if (!is_signed(keys.identity, keys_text(context_, keys), keys.signature)) {
    refuse(keys, "the signature of its keys is not of this round, model and settings");
  }
  return keys;
}

void Cohort::check(const std::string& kind, const std::string& phone, const json::Value& message) const {
  if (kind == "keys") return static_cast<void>(keys_in(message));
  const size_t place = place_of(phone);
  if (kind == "draws") return check_draw(place, text_in(message, "draw"));
  if (kind == "shares") return check_shares(place, texts_in(message, "shares"));
  if (kind == "members") return check_membership(place, text_in(message, "signature"));
  if (kind == "answer") return static_cast<void>(answer_in(place, message));
  if (kind != "agreement") throw Error(Status::usage, kind + ": no kind of message");
  if (!agrees(place, text_in(message, "signature"))) refuse(phones_[place], "its signature is not of this list");
}

void Cohort::fix(const std::string& what, const json::Value& answer) {
  if (what == "cohort") return fix_cohort(list_in(answer, "cohort"));
  if (what == "draws") return fix_draws(texts_in(answer, "draws"));
  if (what == "members") return fix_members(places_in(answer, "members"));
  if (what != "alive") throw Error(Status::usage, what + ": nothing that a cohort fixes");
  fix_alive(places_in(answer, "alive"), texts_in(answer, "signatures"));
}

void Cohort::fix_cohort(const json::Array& messages) {
  std::map<std::string, Keys> by_name;
  std::set<std::string> seen;
  for (const json::Value& message : messages) {
    Keys keys = keys_in(message);
    for (const std::string* key : {&keys.identity, &keys.sealing, &keys.masking, &keys.self, &keys.draw}) {
      if (!seen.insert(*key).second) refuse(keys, "has a key, self mask or draw that the cohort has already");
    }
    if (by_name.count(keys.phone) != 0) refuse(keys, "is in the cohort twice");
    by_name[keys.phone] = std::move(keys);
  }
  const auto count = static_cast<int64_t>(by_name.size());
  if (count < settings_.min_cohort || count > settings_.cohort) {
    refuse("cohort of " + std::to_string(count) + " phones: " + std::to_string(settings_.min_cohort) + " to " +
           std::to_string(settings_.cohort) + " expected");
  }
  rule_ = graph_rule(by_name.size(), settings_.curious, settings_.dropouts);
  std::string text = lines({"phonograd-cohort-1", context_});
  phones_.clear(), places_.clear();
  for (auto& [name, keys] : by_name) {
    text += lines({keys.row()});
    places_[name] = phones_.size();
    phones_.push_back(std::move(keys));
  }
  id_ = cohort_ = hash_of(text);
  numbers_.clear(), members_.clear(), alive_.clear(), membership_.clear(), agreement_.clear();
}

size_t Cohort::place_of(const std::string& phone) const {
  const auto found = places_.find(phone);
  if (found == places_.end()) refuse("phone " + phone + ": is not in the cohort");
  return found->second;
}

void Cohort::check_draw(size_t phone, const std::string& draw) const {
  std::array<uint8_t, 32> bytes;
  if (!from_hex(draw, bytes) || commitment("draw", context_, phones_[phone], bytes_of(bytes)) != phones_[phone].draw) {
    refuse(phones_[phone], "its draw is not the one that it announced");
  }
}

void Cohort::fix_draws(const std::map<std::string, std::string>& draws) {
  std::vector<std::optional<uint64_t>> numbers(phones_.size());
  std::string text = lines({"phonograd-draws-1", cohort_});
  for (const auto& [name, draw] : draws) {
    const size_t phone = place_of(name);
    check_draw(phone, draw);
    numbers[phone] = first_word(hash_of(lines({"phonograd-number-1", cohort_, name, draw})));
    text += lines({name + " " + draw});
  }
  numbers_ = std::move(numbers);
  id_ = hash_of(text);
}

bool Cohort::are_neighbours(size_t one, size_t other) const {
  return one != other && has_drawn(one) && has_drawn(other) &&
         split_mixed(*numbers_[one] + *numbers_[other]) >> 56 < rule_.chance;
}

std::vector<size_t> Cohort::holders_of(size_t phone) const {
  std::vector<size_t> holders;
  for (size_t other = 0; other < phones_.size() && holders.size() < kMostHolders; ++other) {
    if (are_neighbours(phone, other)) holders.push_back(other);
  }
  return holders;
}

size_t Cohort::share_number(size_t phone, size_t holder) const {
  const std::vector<size_t> holders = holders_of(phone);
  const auto found = std::find(holders.begin(), holders.end(), holder);
  return found == holders.end() ? 0 : static_cast<size_t>(found - holders.begin()) + 1;
}

void Cohort::check_shares(size_t phone, const std::map<std::string, std::string>& shares) const {
  const Keys& sender = phones_[phone];
  if (!has_drawn(phone)) refuse(sender, "shares, but no draw");
  const std::vector<size_t> holders = holders_of(phone);
  for (const size_t holder : holders) {
    const std::string& name = phones_[holder].phone;
    const auto found = shares.find(name);
    if (found == shares.end()) refuse(sender, "no share for " + name + ", its neighbour");
    if (is_hex(found->second, kSealedBytes)) continue;
    refuse(sender, "the share for " + name + ": " + std::to_string(kSealedBytes) + " bytes in hex expected");
  }
  if (shares.size() != holders.size()) refuse(sender, "shares for phones that are no neighbours of it");
}

bool Cohort::is_self_mask(size_t phone, const Secret<32>& self) const {
  return commitment("self", context_, phones_[phone], bytes_of(self)) == phones_[phone].self;
}

Answer Cohort::answer_in(size_t phone, const json::Value& message) const {
  const Keys& sender = phones_[phone];
  if (!is_alive(phone)) refuse(sender, "is not on the list of those who are alive");
  Answer answer;
  bytes_in(message, "self", answer.self);
  if (!is_self_mask(phone, answer.self)) refuse(sender, "another self mask than the one it announced");
  for (const auto& [name, share] : texts_in(message, "shares")) {
    const size_t member = place_of(name);
    if (share_number(member, phone) == 0) refuse(sender, "holds no share of " + name);
    if (from_hex(share, answer.shares[member])) continue;
    refuse(sender, "the share of " + name + ": 32 bytes in hex expected");
  }
  return answer;
}

// Places of different phones.
std::set<size_t> Cohort::places_in(const json::Value& answer, const char* name) const {
  std::set<size_t> places;
  for (const json::Value& one : list_in(answer, name)) {
    const size_t place = place_of(text_of(one, name));
    if (!places.insert(place).second) refuse(phones_[place], "listed twice");
  }
  return places;
}

void Cohort::fix_members(const std::set<size_t>& members) {
  for (const size_t phone : members) {
    if (!has_drawn(phone)) refuse(phones_[phone], "a member, but told no draw");
  }
  require_neighbours(members, "are members");
  std::string list = lines({"phonograd-member-list-1", id_});
  for (const size_t phone : members) list += lines({phones_[phone].phone});
  membership_ = lines({"phonograd-members-1", id_, hash_of(list)});
  members_ = members;
}

// Masks with neighbours hide an update, and some of t neighbours do not work with the server.
void Cohort::require_neighbours(const std::set<size_t>& phones, const char* are) const {
  for (const size_t phone : phones) {
    size_t left = 0;
    for (const size_t other : phones) left += are_neighbours(phone, other);
    if (left >= rule_.threshold) continue;
    refuse(phones_[phone], std::to_string(left) + " of its neighbours " + are + ", at least " +
                               std::to_string(rule_.threshold) + " expected");
  }
}

void Cohort::check_membership(size_t phone, const std::string& signature) const {
  if (!is_member(phone)) refuse(phones_[phone], "signed the members, but sent no shares");
  if (is_signed(phones_[phone].identity, membership_, signature)) return;
  refuse(phones_[phone], "its signature is not of these members: it was shown others");
}

std::vector<size_t> Cohort::masks_with(size_t phone) const {
  std::vector<size_t> others;
  for (const size_t other : members_) {
    if (are_neighbours(phone, other)) others.push_back(other);
  }
  return others;
}

void Cohort::fix_alive(const std::set<size_t>& alive, const std::map<std::string, std::string>& signatures) {
  for (const auto& [name, signature] : signatures) check_membership(place_of(name), signature);
  for (const size_t phone : alive) {
    if (!is_member(phone)) refuse(phones_[phone], "listed alive, but sent no shares");
    if (signatures.count(phones_[phone].phone) == 0) refuse(phones_[phone], "listed alive, but signed no members");
  }
  require_neighbours(alive, "are alive");
  alive_ = alive;
  std::string list = lines({"phonograd-list-1", id_});
  for (const size_t phone : members_) list += lines({phones_[phone].phone + (is_alive(phone) ? " alive" : " dead")});
  agreement_ = lines({"phonograd-agree-1", id_, hash_of(list)});
}

bool Cohort::agrees(size_t phone, const std::string& signature) const {
  return is_signed(phones_[phone].identity, agreement_, signature);
}

}  // namespace phonograd
