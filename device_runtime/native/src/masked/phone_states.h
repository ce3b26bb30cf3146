// The steps of a phone's part in a masked round, one class each, and what they share.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>

#include "masked/cohort.h"
#include "masked/grid.h"
#include "masked/identity.h"
#include "masked/phone.h"

namespace phonograd {

// What a phone knows of the round.
struct PhonePart {
  explicit PhonePart(const MaskedPhoneSettings& given)
      : settings(given),
        grid(given.grid),
        cohort(given.round, grid.info().base_sha256, grid.info().settings, given.vendor),
        identity(read_identity(given.identity)) {}

  MaskedPhoneSettings settings;
  GridUpdate grid;
  Cohort cohort;
  Secret<32> identity, sealing, masking, self, draw;
  size_t place = 0;  // of this phone in the cohort
  struct Held {
    Secret<32> masking, self;
  };
  std::map<size_t, Held> held;               // shares that this phone holds, by whose secrets they are of
  std::map<std::string, std::string> known;  // identities of other phones by name; without a vendor

  std::string masked_file() const { return settings.folder + "/masked.safetensors"; }
};

class PhoneState {
 public:
  virtual ~PhoneState() = default;
  virtual const char* name() const = 0;
  // What the phone sends, made once: it is kept, and never made again.
  virtual PhoneRequest request(PhonePart& part) const = 0;
  // Take the server's answer. Also called with kept answers, to know again what they said. Throws Error(update) for one
  // that a phone may not go on with.
  virtual void take(PhonePart& part, const json::Value& answer) const = 0;
};

// In order; after the last one the phone is done.
const std::array<std::unique_ptr<PhoneState>, 7>& phone_states();

}  // namespace phonograd
