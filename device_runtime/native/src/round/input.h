// What a round trains on: a user's text mixed with general text, or token ids.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/manifest.h"
#include "round/settings.h"
#include "text/output_sample.h"
#include "text/rehearsal.h"
#include "training/state.h"

namespace phonograd {

// A token file: ids as little-endian int32 (FORMAT.md, "Token files"). Throws Error(text).
std::vector<int64_t> read_tokens(const std::string& path);

// What messages call the user's text.
std::string user_text_name(const RoundSettings& settings);

// The stream that the settings describe, with the rehearsal drawn by `seed`. Throws Error: text, also for less than a
// window, and for one that the vocabulary has too few words of to make an update from; vocabulary.
TrainingText training_text(const RoundSettings& settings, const Manifest& manifest, uint64_t seed);

// The output sample of a stream; of no candidates where none are to be drawn. Throws Error: artifacts, vocabulary.
OutputSample output_sample(const Manifest& manifest, const std::vector<int64_t>& stream, SampleDraw draw);

}  // namespace phonograd
