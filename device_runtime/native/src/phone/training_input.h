// The input of `train`: a user's text mixed with general text, or token ids.
#pragma once

#include <string>

#include "formats/manifest.h"
#include "phone/arguments.h"
#include "text/output_sample.h"
#include "text/rehearsal.h"
#include "training/state.h"

namespace phonograd::phone {

// λ if --rehearsal is given without --user-share; as in Python's TrainingConfig.
constexpr double kDefaultUserShare = 0.5;

// A token file: ids as little-endian int32 (FORMAT.md, "Token files"), each in [0, vocabulary). Throws Error(text).
std::vector<int64_t> read_tokens(const std::string& path, int64_t vocabulary);

// The stream that the options --user, --rehearsal, --user-share, --tokens and --seed describe. Throws Error: text,
// vocabulary.
TrainingText training_text(const Arguments& arguments, const Manifest& manifest, uint64_t seed);

// The output sample of a stream; of no candidates where none are to be drawn. Throws Error: artifacts, vocabulary.
OutputSample output_sample(const Manifest& manifest, const std::vector<int64_t>& stream, SampleDraw draw);

// With a larger share of unknown words, the text is probably not in the model's language. The same as in Python.
constexpr double kWarnUnknownShare = 0.3;

// Print one line on stderr if the share of unknown words is larger.
void warn_of_unknown(const std::string& what, double share);

}  // namespace phonograd::phone
