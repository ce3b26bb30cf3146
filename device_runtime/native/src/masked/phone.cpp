#include "masked/phone.h"

#include <unistd.h>

#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "formats/json.h"
#include "formats/json_line.h"
#include "masked/identity.h"
#include "masked/phone_states.h"
#include "training/state.h"

namespace phonograd {
namespace {

constexpr size_t kMostBytes = size_t{64} << 20;  // of a file that is read whole

[[noreturn]] void refuse(Status status, const std::string& message) {
  throw Error(status, message);
}

bool exists(const std::string& path) {
  return access(path.c_str(), F_OK) == 0;
}

// Readable by its owner alone.
void write_secret(const std::string& path, std::string text) {
  AtomicFile file(path, 0600);
  file.write(text.data(), text.size());
  file.commit();
  wipe(text.data(), text.size());
}

json::Value read_json(const std::string& path) {
  std::string text = read_file(path, kMostBytes, Status::state);
  json::Value value = json::parse(text, Status::state, path);
  wipe(text.data(), text.size());
  return value;
}

int64_t whole_in(const json::Value& value, const char* name) {
  const json::Value* found = value.find(name);
  const int64_t* whole = found == nullptr ? nullptr : found->as<int64_t>();
  if (whole == nullptr)
    refuse(Status::state, std::string("`") + name + "`: a whole number expected; remove the folder");
  return *whole;
}

}  // namespace

// What is kept on disk: what this phone drew at random or was told, and the request in progress. The rest follows.
struct PhoneFiles {
  explicit PhoneFiles(const std::string& path) : folder(path), lock(path) {}

  std::string round() const { return folder + "/round.json"; }
  std::string history() const { return folder + "/history.json"; }

  std::string folder;
  StateFolder lock;
  int64_t last_round = 0;  // taken part in
  std::vector<std::string> answers;
};

MaskedPhone::MaskedPhone(const MaskedPhoneSettings& settings) : files_(std::make_unique<PhoneFiles>(settings.folder)) {
  part_ = std::make_unique<PhonePart>(settings);
  if (exists(files_->history())) {
    const json::Value history = read_json(files_->history());
    files_->last_round = whole_in(history, "last_round");
    part_->known = texts_in(history.find("known"), "known");
  }
  if (!resume()) begin();
}

MaskedPhone::~MaskedPhone() = default;

// Goes on with the round whose secrets are in the folder; those of another one are removed.
bool MaskedPhone::resume() {
  if (!exists(files_->round())) return false;
  const json::Value kept = read_json(files_->round());
  if (text_in(kept, "context") != to_hex(part_->cohort.context())) {
    leave();
    return false;
  }
  hex_in(kept, "sealing", part_->sealing.data(), 32);
  hex_in(kept, "masking", part_->masking.data(), 32);
  hex_in(kept, "self", part_->self.data(), 32);
  hex_in(kept, "draw", part_->draw.data(), 32);
  const json::Value* answers = kept.find("answers");
  for (const json::Value& answer : *answers->as<json::Array>()) {
    files_->answers.push_back(*answer.as<std::string>());
    phone_states()[state_++]->take(*part_, json::parse(files_->answers.back(), Status::state, files_->round()));
  }
  request_ = {static_cast<PhoneRequest::Action>(whole_in(kept, "action")), text_in(kept, "path"),
              text_in(kept, "body")};
  return true;
}

void MaskedPhone::begin() {
  const auto round = static_cast<int64_t>(part_->settings.round);
  if (round <= files_->last_round) {
    refuse(Status::state, part_->settings.folder + ": this phone has taken part in round " +
                              std::to_string(files_->last_round) + "; a later round expected, found " +
                              std::to_string(round));
  }
  for (Secret<32>* secret : {&part_->sealing, &part_->masking, &part_->self, &part_->draw})
    random_bytes(secret->data(), 32);
  files_->last_round = round;
  remember();
  enter(0);
}

void MaskedPhone::take(const std::string& answer) {
  if (state_ == phone_states().size()) refuse(Status::usage, "this phone's part in the round is done");
  try {
    phone_states()[state_]->take(*part_,
                                 json::parse(answer.empty() ? "{}" : answer, Status::update, "the server's answer"));
  } catch (const Error& error) {
    if (error.status() == Status::update) leave();
    throw;
  }
  files_->answers.push_back(answer.empty() ? "{}" : answer);
  if (state_ == 0) remember();
  enter(state_ + 1);
}

void MaskedPhone::enter(size_t state) {
  state_ = state;
  if (state_ == phone_states().size()) {
    leave();
    return;
  }
  request_ = phone_states()[state_]->request(*part_);
  save();
}

void MaskedPhone::save() const {
  std::string answers;
  for (const std::string& answer : files_->answers) answers += (answers.empty() ? "" : ",") + json::quote(answer);
  JsonLine line;
  line.text("context", to_hex(part_->cohort.context()));
  line.text("sealing", to_hex(part_->sealing))
      .text("masking", to_hex(part_->masking))
      .text("self", to_hex(part_->self))
      .text("draw", to_hex(part_->draw));
  line.integer("action", static_cast<int64_t>(request_.action)).text("path", request_.path).text("body", request_.body);
  line.raw("answers", "[" + answers + "]");
  write_secret(files_->round(), line.str() + "\n");
}

// Which rounds it took part in, and whom it knows.
void MaskedPhone::remember() const {
  JsonLine known;
  for (const auto& [name, identity] : part_->known) known.text(name.c_str(), identity);
  JsonLine line;
  line.integer("last_round", files_->last_round).object("known", known);
  write_secret(files_->history(), line.str() + "\n");
}

void MaskedPhone::leave() {
  for (const std::string& path : {files_->round(), part_->masked_file()}) unlink(path.c_str());
  files_->answers.clear();
  request_ = {};
  state_ = phone_states().size();
}

}  // namespace phonograd
