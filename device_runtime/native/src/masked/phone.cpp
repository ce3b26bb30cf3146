#include "masked/phone.h"

#include <unistd.h>

#include "base/error.h"
#include "base/random_bytes.h"
#include "formats/json_file.h"

namespace phonograd {

MaskedPhone::MaskedPhone(const MaskedPhoneSettings& settings) : lock_(settings.folder), part_(settings) {
  if (json::is_there(history_file())) {
    const json::Value history = json::read_own(history_file());
    const json::Value* round = history.find("last_round");
    if (round == nullptr || round->as<int64_t>() == nullptr) {
      throw Error(Status::state, history_file() + ": `last_round`, a whole number, expected; remove the folder");
    }
    last_round_ = *round->as<int64_t>();
    part_.known = texts_in(history, "known");
  }
  if (!resume()) begin();
}

// Goes on with the round whose secrets are in the folder; those of another one are removed.
bool MaskedPhone::resume() {
  if (!json::is_there(round_file())) return false;
  const json::Value kept = json::read_own(round_file());
  if (text_in(kept, "context") != part_.cohort.context()) {
    leave();
    return false;
  }
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
  return true;
}

void MaskedPhone::begin() {
  const auto round = static_cast<int64_t>(part_.settings.round);
  if (round <= last_round_) {
    throw Error(Status::took_part, part_.settings.folder + ": this phone has taken part in round " +
                                       std::to_string(last_round_) + "; a later round expected, found " +
                                       std::to_string(round));
  }
  for (Secret<32>* secret : {&part_.sealing, &part_.masking, &part_.self, &part_.draw})
    random_bytes(secret->data(), 32);
  last_round_ = round;
  remember();
  proceed();
}

void MaskedPhone::take(const std::string& answer) {
  if (request_.action == "done") throw Error(Status::usage, "this phone's part in the round is done");
  const std::string text = answer.empty() ? "{}" : answer;
  try {
    kPhoneStates[answers_.size()].take(part_, json::parse(text, Status::update, "the server's answer"));
    answers_.push_back(text);
    if (answers_.size() == 1) remember();
    proceed();
  } catch (const Error& error) {
    if (error.status() == Status::update) leave();
    throw;
  }
}

// To the next request.
void MaskedPhone::proceed() {
  if (answers_.size() == kPhoneStates.size()) return leave();
  request_ = kPhoneStates[answers_.size()].request(part_);
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

// Which rounds it took part in, and whom it knows.
void MaskedPhone::remember() const {
  JsonLine line;
  json::write_own(history_file(), line.integer("last_round", last_round_).raw("known", object_of(part_.known)));
}

void MaskedPhone::leave() {
  for (const std::string& path : {round_file(), part_.masked_file()}) unlink(path.c_str());
  answers_.clear();
  request_ = {};
}

}  // namespace phonograd
