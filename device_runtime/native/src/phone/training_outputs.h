// The outputs of `train`: the trained weights and the update for the server.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "formats/tensor_file.h"
#include "phone/arguments.h"
#include "phone/json_line.h"

namespace phonograd::phone {

// Throws Error(storage) if no file can be written at `path`. Called before training, so that no work is lost.
void require_writable(const std::string& path);

// What to write, and where.
struct TrainingOutputs {
  std::string weights;  // "": not written
  std::string update;   // likewise
  std::string codec;
  uint64_t round = 1;
  bool codec_costs = false;  // report the size of each codec's update

  // Whether the hash of the base weights is needed.
  bool needs_identity() const { return !update.empty() || codec_costs; }
};

// The outputs that the options --out, --update, --codec, --codec-costs and --round ask for, all checked to be writable.
// Throws Error: usage, storage.
TrainingOutputs training_outputs(const Arguments& arguments);

// Write the outputs durably and add a field for each to the report. `sha256` is the identity of the base weights.
// Throws Error: training if a trained weight is not finite, weights if the base file was changed (in both cases nothing
// is written), storage.
void write_outputs(const TrainingOutputs& outputs, const Engine& engine, const std::string& sha256, int64_t tokens,
                   uint64_t seed, JsonLine& report);

// The size of the update with each codec, and the seconds to encode it; nothing is written. Throws Error(weights) if a
// trained weight is not finite.
std::vector<JsonLine> codec_costs(const Engine& engine, const std::string& sha256, int64_t tokens, uint64_t seed);

}  // namespace phonograd::phone
