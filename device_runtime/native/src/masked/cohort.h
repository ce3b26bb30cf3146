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
#include "masked/grid.h"
#include "masked/messages.h"
#include "masked/settings.h"

namespace phonograd {

// One phone's answer: its own self mask, and shares by the member that they are of.
struct Answer {
  Secret<32> self;
  std::map<size_t, Secret<32>> shares;
};

// All that comes from outside is checked: functions throw Error(update), with the reason, and change nothing then. Not
// thread-safe.
class Cohort {
 public:
  // `vendor`: whose certificates phones must have, in hex; none: they need none. Throws Error(usage) for the settings,
  // the base's hash or the vendor.
  Cohort(uint64_t round, const GridInfo& grid, const std::optional<std::string>& vendor);

  const MaskedSettings& settings() const { return settings_; }
  uint64_t round() const { return round_; }
  const GridInfo& grid() const { return grid_; }           // model and settings
  const std::string& context() const { return context_; }  // X

  // Check a phone's message: of its `keys`, `draws`, `shares`, `members`, `agreement` or `answer`.
  void check(const std::string& kind, const std::string& phone, const json::Value& message) const;
  // A checked message, or an answer to be unmasked with.
  Answer answer_in(size_t phone, const json::Value& message) const;
  // Fix what the server's answer of that name says: in this order the `cohort` in any order, whose names and keys must
  // differ, and as many as the settings allow; `draws`, from which it is known who is whose neighbour; `members`, who
  // sent shares; who of them are `alive`, the others being dead, with the `signatures` of the members by phone.
  void fix(const std::string& what, const json::Value& answer);

  const std::vector<Keys>& phones() const { return phones_; }  // in order
  const GraphRule& rule() const { return rule_; }
  const std::string& id() const { return id_; }     // K; once the draws are known, W
  size_t place_of(const std::string& phone) const;  // in phones()
  // A phone's neighbours that hold shares of its secrets, in order.
  std::vector<size_t> holders_of(size_t phone) const;
  // The x of a phone's shares that this one holds; 0: it holds none.
  size_t share_number(size_t phone, size_t holder) const;
  // Whether this is the self mask that a phone announced.
  bool is_self_mask(size_t phone, const Secret<32>& self) const;
  const std::set<size_t>& members() const { return members_; }
  bool is_member(size_t phone) const { return members_.count(phone) != 0; }
  // The members that a member masks with.
  std::vector<size_t> masks_with(size_t phone) const;
  const std::set<size_t>& alive() const { return alive_; }
  bool is_alive(size_t phone) const { return alive_.count(phone) != 0; }
  const std::string& membership() const { return membership_; }  // what phones sign of the members
  const std::string& agreement() const { return agreement_; }    // and of the list of who is alive
  bool agrees(size_t phone, const std::string& signature) const;

 private:
  Keys keys_in(const json::Value& message) const;
  void check_draw(size_t phone, const std::string& draw) const;
  void check_shares(size_t phone, const std::map<std::string, std::string>& shares) const;
  void fix_cohort(const json::Array& messages);
  void fix_draws(const std::map<std::string, std::string>& draws);
  void fix_members(const std::set<size_t>& members);
  void fix_alive(const std::set<size_t>& alive, const std::map<std::string, std::string>& signatures);
  void check_membership(size_t phone, const std::string& signature) const;
  void require_neighbours(const std::set<size_t>& phones, const char* are) const;
  bool has_drawn(size_t phone) const { return phone < numbers_.size() && numbers_[phone].has_value(); }
  bool are_neighbours(size_t one, size_t other) const;
  std::set<size_t> places_in(const json::Value& answer, const char* name) const;

  const MaskedSettings settings_;
  const uint64_t round_;
  const GridInfo grid_;
  const std::optional<std::string> vendor_;
  std::string context_, cohort_, id_, membership_, agreement_;
  std::vector<Keys> phones_;
  std::map<std::string, size_t> places_;
  GraphRule rule_;
  std::vector<std::optional<uint64_t>> numbers_;  // of phones that told their draws
  std::set<size_t> members_, alive_;
};

}  // namespace phonograd
