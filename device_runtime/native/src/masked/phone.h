// A phone's part in a masked round: what it sends next, and what it takes from the server. FORMAT.md, "Masked rounds".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "masked/phone_states.h"
#include "training/state.h"

namespace phonograd {

// One caller at a time. A message is on disk before it is sent, so after a kill the same one is sent again: never
// two different messages for one step, nor two updates under the same masks.
class MaskedPhone {
 public:
  // Takes part in the round, or continues it. Throws Error: usage for settings, took_part if the phone took part in
  // this round or a later one before, or sent a masked update of this model, state if the folder is in use or damaged,
  // update for the grid update or a round's number that is too far from the last one, storage.
  explicit MaskedPhone(const MaskedPhoneSettings& settings);
  MaskedPhone(const MaskedPhone&) = delete;
  MaskedPhone& operator=(const MaskedPhone&) = delete;

  // What to do now; the same until `take`.
  const PhoneRequest& request() const;
  // The request's answer; "" once a file is uploaded. Throws Error(update), with the reason, if this phone may not go
  // on with it: it has then left the round, and its secrets are gone. After any other error, such as of a full disk,
  // this object refuses all; a new one goes on from what is on disk.
  void take(const std::string& answer);

 private:
  void recall();
  bool has_sent() const;
  bool resume();
  void check_round() const;
  void begin();
  void proceed();
  void save() const;
  void remember() const;
  void leave();
  std::string round_file() const { return part_.settings.folder + "/round.json"; }
  std::string history_file() const { return part_.settings.folder + "/history.json"; }

  StateFolder lock_;
  PhonePart part_;
  int64_t last_round_ = 0;          // taken part in
  std::vector<std::string> bases_;  // hashes of the models of which a masked update was sent
  // Kept on disk, with what the phone drew at random: what it was told, and the request in progress. The rest follows.
  std::vector<std::string> answers_;
  PhoneRequest request_;
  bool broken_ = false;  // knows more than the disk
};

}  // namespace phonograd
