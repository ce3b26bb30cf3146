// What a keyboard asks: the most probable words after a context that begin with what is typed already.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/kss.h"
#include "text/scorer.h"
#include "text/vocabulary.h"

namespace phonograd {

// Scores [V] of the next word after a context: the messages before, a line each, and what is written of the current one
// (the last line, maybe empty). Resets the scorer and asks it in pieces of at most `bptt` steps; the result is the
// scorer's memory, valid until its next call.
const float* score_next(Scorer& scorer, const Vocabulary& vocabulary, std::string_view context, int64_t bptt);

// Ids of the 3 words with the highest scores [V] that begin with `typed` (folded as text is), best first, of equals the
// one with the lower id first; fewer if there are fewer. Never <unk> or <eos>. A word stands among them just when
// PrefixIndex::typed says that it is suggested, ties aside. Thread-safe.
std::vector<int64_t> suggest(const PrefixIndex& index, const float* scores, std::string_view typed);

}  // namespace phonograd
