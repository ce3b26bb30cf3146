#include "masked/phone.h"

#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/random_bytes.h"
#include "formats/json_file.h"
#include "formats/phone_name.h"

namespace phonograd {
namespace {

// A number that a server announces once, and that is then the phone's last round: how far it may be from the one
// before, and how large a phone's first one may be.
constexpr int64_t kFarthest = 1'000'000, kLargestFirst = 1'000'000'000;
constexpr size_t kMostBytes = size_t{8} << 20;  // of an answer: the keys of 2,048 phones have 2 MB

}  // namespace

MaskedPhone::MaskedPhone(const MaskedPhoneSettings& settings) : lock_(settings.folder), part_(settings) {
  check_phone_name(settings.phone);
  recall();
  if (!resume()) begin();
}

void MaskedPhone::recall() {
  if (!json::is_there(history_file())) return;
  try {
    const json::Value history = json::read_own(history_file());
    const json::Value* round = history.find("last_round");
    if (round == nullptr || round->as<int64_t>() == nullptr) {
      throw Error(Status::state, "`last_round`, a whole number, expected");
    }
    last_round_ = *round->as<int64_t>();
    part_.known = texts_in(history, "known");
    for (const json::Value& base : list_in(history, "bases")) bases_.push_back(text_of(base, "bases"));
  } catch (const Error& error) {
    throw Error(Status::state, history_file() + ": " + error.what() +
                                   "; restore it: without it this phone forgets of which models it sent an update");
  }
}

// Whether it made a masked update of this model.
bool MaskedPhone::has_sent() const {
  return std::find(bases_.begin(), bases_.end(), part_.cohort.grid().base_sha256) != bases_.end();
}

// Continues the round whose secrets are in the folder.
bool MaskedPhone::resume() {
  if (!json::is_there(round_file())) return false;
  const json::Value kept = json::read_own(round_file());
  if (text_in(kept, "context") != part_.cohort.context()) return false;
  bytes_in(kept, "sealing", part_.sealing);
  bytes_in(kept, "masking", part_.masking);
  bytes_in(kept, "self", part_.self);
  bytes_in(kept, "draw", part_.draw);
  for (const json::Value& answer : list_in(kept, "answers")) {
    const std::string& text = text_of(answer, "answers");
    kPhoneStates.at(answers_.size()).take(part_, json::parse(text, Status::state, round_file()));
    answers_.push_back(text);
  }
  request_ = {text_in(kept, "action"), text_in(kept, "path"), text_in(kept, "body")};
  // The same keys, with the certificate that the phone has now: it may have had none.
  if (answers_.empty()) proceed();
  return true;
}

// Throws unless this phone may start to take part in the round.
void MaskedPhone::check_round() const {
  const auto round = static_cast<int64_t>(part_.settings.round);
  const std::string last = std::to_string(last_round_), found = "found " + std::to_string(round);
  if (round <= last_round_) {
    throw Error(Status::took_part, history_file() + ": this phone has taken part in round " + last +
                                       "; a later round expected, " + found +
                                       ". If the server lost its rounds, set `last_round` there to 0");
  }
  const int64_t most = last_round_ == 0 ? kLargestFirst : last_round_ + kFarthest;
  if (round > most) {
    throw Error(Status::update, history_file() + ": after round " + last + " a round up to " + std::to_string(most) +
                                    " expected, " + found + ". If the server has come so far, set `last_round` there");
  }
  if (has_sent()) {
    throw Error(Status::took_part, history_file() + ": this phone has sent a masked update of model " +
                                       part_.cohort.grid().base_sha256 +
                                       ": a second sum with it, less the first, could give it away. It takes part "
                                       "again once the server has another model");
  }
}

// What is left of another round is removed.
void MaskedPhone::begin() {
  check_round();
  leave();
  for (Secret<32>* secret : {&part_.sealing, &part_.masking, &part_.self, &part_.draw})
    random_bytes(secret->data(), 32);
  last_round_ = static_cast<int64_t>(part_.settings.round);
  remember();
  proceed();
}

const PhoneRequest& MaskedPhone::request() const {
  if (!broken_) return request_;
  throw Error(Status::state, part_.settings.folder + ": an error came before; open the round again to go on");
}

void MaskedPhone::take(const std::string& answer) {
  if (request().action == "done") throw Error(Status::usage, "this phone's part in the round is done");
  const std::string text = answer.empty() ? "{}" : answer;
  try {
    broken_ = true;
    if (text.size() > kMostBytes) throw Error(Status::update, "more than " + std::to_string(kMostBytes) + " bytes");
    kPhoneStates[answers_.size()].take(part_, json::parse(text, Status::update, "the server's answer"));
    answers_.push_back(text);
    if (answers_.size() == 1) remember();
    proceed();
    broken_ = false;
  } catch (const Error& error) {
    if (error.status() != Status::update) throw;
    broken_ = false;
    const std::string stage = request_.path.substr(request_.path.rfind('/') + 1);
    leave();
    throw Error(Status::update, "the server's answer to this phone's `" + stage + "`: " + error.what() +
                                    "; it leaves the round, and can take part in a later one");
  }
}

// To the next request.
void MaskedPhone::proceed() {
  if (answers_.size() == kPhoneStates.size()) return leave();
  request_ = kPhoneStates[answers_.size()].request(part_);
  // On disk before the update is told: after a kill at any moment there is no second one of this model.
  if (request_.action == "upload" && !has_sent()) {
    bases_.push_back(part_.cohort.grid().base_sha256);
    remember();
  }
  save();
}

void MaskedPhone::save() const {
  std::string answers;
  for (const std::string& answer : answers_) answers += (answers.empty() ? "" : ",") + json::quote(answer);
  JsonLine line;
  line.text("context", part_.cohort.context());
  line.text("sealing", to_hex(part_.sealing)).text("masking", to_hex(part_.masking));
  line.text("self", to_hex(part_.self)).text("draw", to_hex(part_.draw));
  request_.add_to(line);
  json::write_own(round_file(), line.raw("answers", "[" + answers + "]"));
}

// Writes down which rounds it took part in, whom it knows, and for which models it sent an update.
void MaskedPhone::remember() const {
  std::string bases;
  for (const std::string& base : bases_) bases += (bases.empty() ? "" : ",") + json::quote(base);
  JsonLine line;
  line.integer("last_round", last_round_).raw("known", object_of(part_.known));
  json::write_own(history_file(), line.raw("bases", "[" + bases + "]"));
}

void MaskedPhone::leave() {
  for (const std::string& path : {round_file(), part_.masked_file()}) unlink(path.c_str());
  answers_.clear();
  request_ = {};
}

}  // namespace phonograd
