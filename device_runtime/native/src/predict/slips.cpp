#include "predict/slips.h"

#include <algorithm>

#include "text/unicode.h"

namespace phonograd {

Slips::Slips(std::string_view typed, std::string_view neighbours) {
  for (size_t at = 0; at < typed.size();) {
    const Character one = character_at(typed, at);
    typed_.push_back({one.point, {}});
    at += one.length;
  }
  for (size_t at = 0; at < neighbours.size();) {
    const Character one = character_at(neighbours, at);
    const Character other = character_at(neighbours, at + one.length);
    at += one.length;
    if (one.point == ' ' || other.length == 0 || other.point == ' ') continue;
    at += other.length;
    const uint32_t left = fold_case(one.point), right = fold_case(other.point);
    for (Letter& letter : typed_) {
      if (letter.point == left) letter.neighbours.push_back(right);
      if (letter.point == right) letter.neighbours.push_back(left);
    }
  }
}

// Whether the word goes on at `at` as what was typed does from a letter on.
bool Slips::goes_on(std::string_view word, size_t at, size_t letter) const {
  for (; letter < typed_.size(); ++letter) {
    const Character one = character_at(word, at);
    if (one.length == 0 || one.point != typed_[letter].point) return false;
    at += one.length;
  }
  return true;
}

bool Slips::fit(std::string_view word) const {
  constexpr size_t kShortest = 2;
  const size_t n = typed_.size();
  if (n < kShortest) return false;
  size_t same = 0, at = 0;  // letters that are as typed, and their bytes
  Character next = character_at(word, 0);
  for (; same < n && next.length != 0 && next.point == typed_[same].point; ++same) {
    at += next.length;
    next = character_at(word, at);
  }
  if (same == n) return false;  // no slip
  const Letter& wrong = typed_[same];
  const bool doubled = same > 0 && wrong.point == typed_[same - 1].point;
  if (doubled && goes_on(word, at, same + 1)) return true;
  if (next.length == 0) return false;
  const size_t after = at + next.length;
  if (goes_on(word, after, same)) return true;  // one is missing
  const auto is_next = [&](uint32_t neighbour) { return neighbour == next.point; };
  if (std::any_of(wrong.neighbours.begin(), wrong.neighbours.end(), is_next) && goes_on(word, after, same + 1))
    return true;
  if (same + 1 == n || next.point != typed_[same + 1].point) return false;
  const Character second = character_at(word, after);
  return second.length != 0 && second.point == wrong.point && goes_on(word, after + second.length, same + 2);
}

}  // namespace phonograd
