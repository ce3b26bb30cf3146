// What `train` trains on: a user's text mixed with general text, or token ids as they are.
#pragma once

#include <string>

#include "formats/manifest.h"
#include "phone/arguments.h"
#include "text/output_sample.h"
#include "text/rehearsal.h"
#include "training/state.h"

namespace phonograd::phone {

// λ where --rehearsal is given without --user-share; as Python's TrainingConfig.
constexpr double kDefaultUserShare = 0.5;

// A token file: ids as little-endian int32 (FORMAT.md, "Token files"), each in [0, vocabulary). Throws Error(text).
std::vector<int64_t> read_tokens(const std::string& path, int64_t vocabulary);

// The stream that the options --user, --rehearsal, --user-share, --tokens and --seed describe. Throws Error: text,
// vocabulary.
TrainingText training_text(const Arguments& arguments, const Manifest& manifest, uint64_t seed);

// The output sample of a stream; of no candidates where none are to be drawn. Throws Error: artifacts, vocabulary.
OutputSample output_sample(const Manifest& manifest, const std::vector<int64_t>& stream, SampleDraw draw);

// A larger share of unknown words, and a text is likely not what the model is for; Python's too.
constexpr double kWarnUnknownShare = 0.3;

// One line on stderr about a text of which more than that is unknown.
void warn_of_unknown(const std::string& what, double share);

}  // namespace phonograd::phone
