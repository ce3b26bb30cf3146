// The steps of a phone's part in a masked round, and what they share.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>

#include "masked/cohort.h"
#include "masked/grid.h"
#include "masked/identity.h"

namespace phonograd {

struct MaskedPhoneSettings {
  std::string folder;       // of this phone at one server: the round's secrets, and what it remembers of rounds
  std::string identity;     // file of its key
  std::string certificate;  // hex; "": none
  std::optional<std::string> vendor;  // hex; none: phones are known by the key that they had first
  std::string phone;                  // its name
  std::string grid;                   // the grid update
  uint64_t round = 0;
  int64_t min_cohort = 50;  // the least that it takes part in
  int threads = 2;
};

struct PhoneRequest {
  std::string action = "done";  // or: send, upload
  std::string path;             // of the server's; of an upload: the file
  std::string body;             // JSON

  void add_to(JsonLine& line) const { line.text("action", action).text("path", path).text("body", body); }
};

// What a phone knows of the round.
struct PhonePart {
  explicit PhonePart(const MaskedPhoneSettings& given)
      : settings(given),
        grid(given.grid),
        cohort(given.round, grid.info(), given.vendor),
        identity(read_identity(given.identity)) {}

  MaskedPhoneSettings settings;
  GridUpdate grid;
  Cohort cohort;
  Secret<32> identity, sealing, masking, self, draw;
  size_t place = 0;                            // of this phone in the cohort
  std::map<size_t, Secret<kShareBytes>> held;  // shares that this phone holds, by whose secrets they are of
  std::map<std::string, std::string> known;    // identities of other phones by name; without a vendor

  std::string masked_file() const { return settings.folder + "/masked.safetensors"; }
};

struct PhoneState {
  // What the phone sends, made once: it is kept, and never made again.
  PhoneRequest (*request)(PhonePart& part);
  // Take the server's answer. Also called with kept answers, to know again what they said. Throws Error(update) for one
  // that a phone may not go on with.
  void (*take)(PhonePart& part, const json::Value& answer);
};

// In order; after the last one the phone is done.
extern const std::array<PhoneState, 8> kPhoneStates;

}  // namespace phonograd
