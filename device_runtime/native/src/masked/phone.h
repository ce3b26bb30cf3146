// A phone's part in a masked round: what it sends next, and what it takes from the server. FORMAT.md, "Masked rounds".
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "crypto/crypto.h"

namespace phonograd {

struct MaskedPhoneSettings {
  std::string folder;       // of this phone at one server: the round's secrets, and what it remembers of rounds
  std::string identity;     // file of its key
  std::string certificate;  // hex; "": none
  std::optional<PublicKey> vendor;
  std::string phone;  // its name
  std::string grid;   // the grid update
  uint64_t round = 0;
  int64_t min_cohort = 50;  // the least that it takes part in
  int threads = 2;
};

struct PhoneRequest {
  enum class Action { send, upload, done };
  Action action = Action::done;
  std::string path;  // of the server's; of an upload: the file
  std::string body;  // JSON
};

struct PhoneFiles;
struct PhonePart;

// One caller at a time. What was decided is on disk before it is told, so after a kill the same is sent again: never
// two different messages for one step, nor two updates under the same masks.
class MaskedPhone {
 public:
  // Takes part in the round, or goes on with it. Throws Error: usage for settings, state if the phone took part in this
  // round or a later one already or the folder is in use, update for the grid update, storage.
  explicit MaskedPhone(const MaskedPhoneSettings& settings);
  ~MaskedPhone();
  MaskedPhone(const MaskedPhone&) = delete;
  MaskedPhone& operator=(const MaskedPhone&) = delete;

  // What to do now; the same until `take`.
  const PhoneRequest& request() const { return request_; }
  // The request's answer; "" once a file is uploaded. Throws Error(update), with the reason, if this phone may not go
  // on with it: it has then left the round, and its secrets are gone.
  void take(const std::string& answer);

 private:
  bool resume();
  void begin();
  void enter(size_t state);
  void save() const;
  void remember() const;
  void leave();

  std::unique_ptr<PhoneFiles> files_;
  std::unique_ptr<PhonePart> part_;
  size_t state_ = 0;
  PhoneRequest request_;
};

}  // namespace phonograd
