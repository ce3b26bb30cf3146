#include "text/word_path.h"

#include <algorithm>
#include <limits>

#include "text/unicode.h"

namespace phonograd {
namespace {

constexpr int kFractionBits = 10;
constexpr int64_t kUnknownBits = 8;  // a grapheme that is no word costs as much more than a word that was never counted

// The binary logarithm of a number from 1 on, in 2^-10, rounded down.
int64_t logarithm(uint64_t number) {
  int64_t result = 0;
  for (; number >> (result + 1) != 0;) ++result;
  uint64_t mantissa = result > 31 ? number >> (result - 31) : number << (31 - result);  // in [2^31, 2^32)
  for (int bit = 0; bit < kFractionBits; ++bit) {
    mantissa = mantissa * mantissa >> 31;
    const uint64_t carry = mantissa >> 32;
    mantissa >>= carry;
    result = result << 1 | static_cast<int64_t>(carry);
  }
  return result;
}

constexpr int32_t kNoWord = -1;
constexpr size_t kLeastEdges = 1024, kUsualPlaces = 32;

struct Place {
  Place(size_t place, uint32_t begins, bool cut) : at(place), point(begins), is_cut(cut) {}

  size_t at;
  uint32_t point;  // what begins there
  bool is_cut;     // a grapheme begins there
  int64_t cost = std::numeric_limits<int64_t>::max();
  size_t from = 0;  // the place that the word to there begins at
};

// The places before the code points of the run that a text begins with, and that at its end.
std::vector<Place> places_of(std::string_view text) {
  std::vector<Place> places;
  places.reserve(kUsualPlaces);
  size_t at = 0;
  for (Character one = character_at(text, 0); one.is_in_run(); one = character_at(text, at)) {
    places.emplace_back(at, one.point, !one.is.extends());
    at += one.length;
  }
  places.emplace_back(at, 0, true);
  places[0].is_cut = true, places[0].cost = 0;
  return places;
}

}  // namespace

size_t WordPath::place_of(uint32_t from, uint32_t point) const {
  const size_t last = edges_.size() - 1;  // a power of two, less one
  const uint64_t mixed = (uint64_t{from} << 32 | point) * 0x9E3779B97F4A7C15;
  for (size_t at = mixed >> 40;; ++at) {
    const Edge& one = edges_[at & last];
    if (one.to == 0 || (one.from == from && one.point == point)) return at & last;
  }
}

void WordPath::grow() {
  std::vector<Edge> before(std::max(kLeastEdges, 2 * edges_.size()));
  before.swap(edges_);
  for (const Edge& one : before) {
    if (one.to != 0) edges_[place_of(one.from, one.point)] = one;
  }
}

uint32_t WordPath::add_longer(uint32_t from, uint32_t point) {
  if (2 * beginnings_.size() >= edges_.size()) grow();
  Edge& one = edges_[place_of(from, point)];
  if (one.to == 0) {
    one = {from, point, static_cast<uint32_t>(beginnings_.size())};
    beginnings_[from].goes_on = true;
    beginnings_.push_back({kNoWord, false});
  }
  return one.to;
}

void WordPath::add(std::string_view word, int64_t count) {
  Character one = character_at(word, 0);
  if (!one.valid || !one.is.is_unspaced()) return;
  total_ += count + 1;
  if (beginnings_.empty()) beginnings_.push_back({kNoWord, false});
  uint32_t beginning = 0;
  for (size_t at = 0; one.length != 0; one = character_at(word, at)) {
    if (!one.valid) return;  // in no run
    beginning = add_longer(beginning, one.point);
    at += one.length;
  }
  beginnings_[beginning].logarithm = static_cast<int32_t>(logarithm(static_cast<uint64_t>(count) + 1));
}

// The path of least cost over the graphemes, from the left; of two of the same cost, that whose last word is longer.
void WordPath::find(std::string_view text, std::vector<size_t>& ends) const {
  if (edges_.empty()) return graphemes().find(text, ends);
  std::vector<Place> places = places_of(text);
  const int64_t whole = logarithm(static_cast<uint64_t>(total_));
  for (size_t from = 0; from + 1 < places.size(); ++from) {
    if (!places[from].is_cut) continue;
    const auto reach = [&](size_t to, int64_t cost) {
      if (places[from].cost + cost < places[to].cost)
        places[to].cost = places[from].cost + cost, places[to].from = from;
    };
    size_t next = from + 1;
    while (!places[next].is_cut) ++next;
    reach(next, whole + (kUnknownBits << kFractionBits));
    uint32_t number = longer(0, places[from].point);
    for (size_t to = from + 1; number != 0; number = longer(number, places[to++].point)) {
      const Beginning& known = beginnings_[number];
      if (places[to].is_cut && known.logarithm != kNoWord) reach(to, whole - known.logarithm);
      if (!known.goes_on || to + 1 == places.size()) break;
    }
  }
  const size_t first = ends.size();
  for (size_t to = places.size() - 1; to > 0; to = places[to].from) ends.push_back(places[to].at);
  std::reverse(ends.begin() + static_cast<ptrdiff_t>(first), ends.end());
}

}  // namespace phonograd
