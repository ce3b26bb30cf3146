// The commands' output on stdout and stderr.
#pragma once

#include <string>

#include "formats/json_line.h"

namespace phonograd::phone {

// Write the line to stdout and flush it, so that a reader sees each event as it happens. Throws Error(storage) if that
// fails.
void print(const JsonLine& line);

// With a larger share of unknown words, the text is probably not in the model's language. The same as in Python.
constexpr double kWarnUnknownShare = 0.3;

// Print one line on stderr if the share of unknown words is larger.
void warn_of_unknown(const std::string& what, double share);
// Warns if any of its bytes are not UTF-8.
void warn_of_invalid(const std::string& what, double share);

}  // namespace phonograd::phone
