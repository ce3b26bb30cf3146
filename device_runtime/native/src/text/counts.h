// How often each word of a vocabulary was seen in general text. FORMAT.md, "Counts".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/vocabulary.h"

namespace phonograd {

// The counts [V] of a vocabulary's words, each of at most 15 digits. Throws Error(vocabulary) if the file can't be
// read, has another word than the vocabulary, a line too few or too many, or no count on a line; `remedy` ends it.
std::vector<int64_t> load_counts(const std::string& path, const Vocabulary& vocabulary,
                                 const std::string& remedy = "export the folder again");

}  // namespace phonograd
