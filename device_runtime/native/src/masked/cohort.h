// What the phones of a masked round and their server agree on, step by step: the cohort, the members, the list of those
// who are alive. Both sides use it, so that neither takes what the other would refuse. FORMAT.md, "Masked rounds".
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "masked/graph.h"
#include "masked/messages.h"
#include "masked/settings.h"

namespace phonograd {

// All that comes from outside is checked: functions throw Error(update), with the reason, and change nothing then. Not
// thread-safe.
class Cohort {
 public:
  // `vendor`: whose certificates phones must have; none: they need none. Throws Error(usage): settings, base_sha256.
  Cohort(uint64_t round, const std::string& base_sha256, const std::string& settings,
         const std::optional<PublicKey>& vendor);

  const MaskedSettings& settings() const { return settings_; }
  const Hash& context() const { return context_; }  // X

  // Its form, certificate and signature.
  Keys checked_keys(const json::Value& message) const;
  // The cohort, in any order. Names and keys must differ, and there must be as many as the settings allow.
  void fix(const json::Value& messages);

  const std::vector<Keys>& phones() const { return phones_; }  // in order
  const GraphRule& rule() const { return rule_; }
  const Hash& id() const { return id_; }            // K; once the draws are known, W
  size_t place_of(const std::string& phone) const;  // in phones()
  // Of a message, that its draw, in hex, is the one that the phone announced.
  void check_draw(size_t phone, const json::Value& message) const;
  // The draws of those who told them, in hex. From here on it is known who is whose neighbour.
  void set_draws(const std::map<std::string, std::string>& draws);
  // A phone's neighbours that hold shares of its secrets, in order.
  std::vector<size_t> holders_of(size_t phone) const;
  // Of a message of shares, sealed and in hex, that they are for its holders.
  void check_shares(size_t phone, const json::Value& message) const;

  // Those who sent shares.
  void set_members(const json::Value& names);
  const std::vector<size_t>& members() const { return members_; }
  bool is_member(size_t phone) const;
  // The members that a member masks with.
  std::vector<size_t> masks_with(size_t phone) const;

  // The members that are alive; the others are dead.
  void set_alive(const json::Value& names);
  bool is_alive(size_t phone) const { return alive_.count(phone) != 0; }
  const std::set<size_t>& alive() const { return alive_; }
  std::string agreement() const;  // what phones sign of the list
  bool agrees(size_t phone, const std::string& signature) const;

 private:
  bool has_drawn(size_t phone) const { return phone < numbers_.size() && numbers_[phone].has_value(); }
  bool are_neighbours(size_t one, size_t other) const;
  std::set<size_t> places_in(const json::Value& names, const std::string& what) const;

  const MaskedSettings settings_;
  const std::optional<PublicKey> vendor_;
  Hash context_{}, cohort_{}, id_{};
  std::vector<Keys> phones_;
  std::map<std::string, size_t> places_;
  GraphRule rule_;
  std::vector<std::optional<uint64_t>> numbers_;  // of phones that told their draws
  std::vector<size_t> members_;
  std::set<size_t> alive_;
};

}  // namespace phonograd
