// What `train` leaves: the trained weights and the update for the server.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "formats/tensor_file.h"
#include "phone/arguments.h"
#include "phone/json_line.h"

namespace phonograd::phone {

// Throws Error(storage) if a file can't be made at `path`; asked before long work, so that none is lost at its end.
void require_place(const std::string& path);

// Where the trained weights go.
struct TrainingOutputs {
  std::string weights;  // "": not written
  std::string update;   // likewise
  std::string codec;
  uint64_t round = 1;
  bool codec_costs = false;  // what each codec's update would weigh is reported

  // Whether the hash of the weights that training starts from is needed.
  bool needs_identity() const { return !update.empty() || codec_costs; }
};

// The outputs that the options --out, --update, --codec, --codec-costs and --round ask for, their places checked.
// Throws Error: usage, storage.
TrainingOutputs training_outputs(const Arguments& arguments);

// Write them, durably, and add a field for each to the report. `sha256` is the identity of the weights that training
// started from. Throws Error: training for weights that are not finite, weights if the file that training started from
// was changed, and then nothing is written; storage.
void write_outputs(const TrainingOutputs& outputs, const Engine& engine, const std::string& sha256, int64_t tokens,
                   uint64_t seed, JsonLine& report);

// What an update of the trained weights weighs with each codec, and the seconds to encode it; nothing is written.
// Throws Error(weights) for weights that are not finite.
std::vector<JsonLine> codec_costs(const Engine& engine, const std::string& sha256, int64_t tokens, uint64_t seed);

}  // namespace phonograd::phone
