// What a round writes: the trained weights and the update for the server.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "formats/hashed_file.h"
#include "formats/json_line.h"
#include "round/settings.h"
#include "update/update_file.h"

namespace phonograd {

// What base/places says of the settings' outputs, against all that a round reads. Called before training, so that no
// work is lost.
void require_outputs(const RoundSettings& settings, const Manifest& manifest);

// Whether the settings need the hash of the weights that training starts from.
bool needs_identity(const RoundSettings& settings);

// Write the outputs durably and add a field for each to the report. `sha256` is the identity of the base weights.
// Throws Error: training if a trained weight is not finite, weights if the base file was changed (in both cases nothing
// is written), storage.
void write_outputs(const RoundSettings& settings, const Engine& engine, const std::string& sha256, int64_t tokens,
                   uint64_t seed, JsonLine& report);

// The size of the update with each codec, and the seconds to encode it; nothing is written. Throws Error(weights) if a
// trained weight is not finite.
std::vector<JsonLine> codec_costs(const Engine& engine, const std::string& sha256, int64_t tokens, uint64_t seed);

}  // namespace phonograd
