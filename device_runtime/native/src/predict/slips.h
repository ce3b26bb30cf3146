// Slips of a finger: what was typed, and words that were meant.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace phonograd {

constexpr double kSlipCost = 6;  // nats: less displaces words that are typed as they are meant
// Keys side by side, in pairs.
constexpr std::string_view kQwerty =
    "qw we er rt ty yu ui io op as sd df fg gh hj jk kl zx xc cv vb bn nm "
    "qa wa ws es ed rd rf tf tg yg yh uh uj ij ik ok ol pl az sz sx dx dc fc fv gv gb hb hn jn jm km";

// Const methods are thread-safe.
class Slips {
 public:
  // typed: folded. neighbours: pairs of letters, with spaces between the pairs.
  Slips(std::string_view typed, std::string_view neighbours);

  // Whether a word begins with what was typed but for one slip: a neighbouring key, two letters swapped, one missing,
  // or one doubled.
  bool fit(std::string_view word) const;

 private:
  struct Letter {
    uint32_t point;
    std::vector<uint32_t> neighbours;
  };

  bool goes_on(std::string_view word, size_t at, size_t letter) const;

  std::vector<Letter> typed_;
};

}  // namespace phonograd
