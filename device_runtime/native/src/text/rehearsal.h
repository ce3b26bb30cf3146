// Random rehearsal (paper P): the user's messages mixed with general ones. FORMAT.md, "Rehearsal".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace phonograd {

// The share of a stream's words (tokens but <eos>) that are <unk>; 0 of none.
double unknown_share(const std::vector<int64_t>& stream);

// The share of messages' bytes that are part of no UTF-8 character.
double invalid_share(const std::vector<std::string_view>& messages);

// What one epoch trains on: the stream of ids [N], the number of the user's and of general tokens in it, for both the
// share of words that the vocabulary does not have, and the share of the user's bytes that are not UTF-8.
struct TrainingText {
  std::vector<int64_t> stream;
  int64_t user_tokens = 0;
  int64_t general_tokens = 0;
  double user_unknown_share = 0;
  double general_unknown_share = 0;
  double user_invalid_share = 0;

  // The user's actual share of the tokens.
  double user_share() const {
    return static_cast<double>(user_tokens) / static_cast<double>(user_tokens + general_tokens);
  }
};

// The user's messages, shuffled with enough general tokens that the user's share is `user_share`. With a share of 1 the
// user's messages stay in order and `general` is not used. Throws Error(text) if the share is outside (0, 1] or
// `general` is too short. Thread-safe.
TrainingText mix(const std::vector<std::string_view>& user, const std::vector<std::string_view>& general,
                 double user_share, const Vocabulary& vocabulary, uint64_t seed);

}  // namespace phonograd
