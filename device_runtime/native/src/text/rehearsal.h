// Random rehearsal (paper P): the user's messages mixed with general ones. FORMAT.md, "Rehearsal"; the same stream as
// device_runtime/text/rehearsal.py's for the same seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace phonograd {

// The share of a stream's words (tokens but <eos>) that are <unk>; 0 of none.
double unknown_share(const std::vector<int64_t>& stream);

// What one epoch trains on: the stream of ids [N], how many of its tokens are whose, and which share of whose words the
// vocabulary does not have.
struct TrainingText {
  std::vector<int64_t> stream;
  int64_t user_tokens = 0;
  int64_t general_tokens = 0;
  double user_unknown_share = 0;
  double general_unknown_share = 0;

  // The user's share of tokens as it came out.
  double user_share() const {
    return static_cast<double>(user_tokens) / static_cast<double>(user_tokens + general_tokens);
  }
};

// The user's messages and as many general tokens as make the user's share `user_share`, shuffled. With a share of 1 the
// user's order is kept and `general` unused. Throws Error(text) for a share outside (0, 1] and where `general` is too
// short for it. Thread-safe.
TrainingText mix(const std::vector<std::string_view>& user, const std::vector<std::string_view>& general,
                 double user_share, const Vocabulary& vocabulary, uint64_t seed);

}  // namespace phonograd
