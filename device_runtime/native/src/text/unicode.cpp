#include "text/unicode.h"

#include <algorithm>
#include <iterator>

#include "formats/manifest.h"
#include "formats/utf8.h"

namespace phonograd {
namespace unicode_tables {
namespace {

struct Folding {
  uint32_t first, last, step;
  int32_t difference;
};

}  // namespace

#include "text/unicode_tables.inc"

static_assert(kUnicodeVersion == kVersion, "a manifest names the version of these tables");

CodePoint beyond(uint32_t point) {
  constexpr uint32_t kNormalizes = 1 << 8, kUnseen = 1 << 12, kUnspaced = 1 << 13;
  if (point >= 0x2F800 && point < 0x2FA20) return {kNormalizes | kUnspaced};
  if (point < 0x3FFFE) return {kUnspaced};  // Han
  return {point - 0xE0000 < 0x1000 ? static_cast<uint32_t>(WordClass::extend) | kUnseen : 0};
}

}  // namespace unicode_tables

namespace {

using namespace unicode_tables;

constexpr uint32_t kFirstBits = 18;
// Hangul syllables are composed by arithmetic: The Unicode Standard, 3.12.
constexpr uint32_t kSyllables = 0xAC00, kLeads = 0x1100, kVowels = 0x1161, kTails = 0x11A7;
constexpr uint32_t kLeadCount = 19, kVowelCount = 21, kTailCount = 28, kSyllableCount = 11172;

// The parts of the decomposition at a place: the second is 0 where there is one.
struct Parts {
  uint32_t first, second;
};

Parts parts_at(size_t place) {
  return {kParts[place] & ((1u << kFirstBits) - 1), kSeconds[kParts[place] >> kFirstBits]};
}

// Place of a code point's decomposition; that after the last if it has none.
size_t place_of(uint32_t point) {
  constexpr size_t kNear = std::size(kDecomposed), kAll = std::size(kParts);
  const auto place_in = [&](const auto& points, size_t offset) {
    const auto* found = std::lower_bound(std::begin(points), std::end(points), point);
    return found == std::end(points) || *found != point ? kAll
                                                        : offset + static_cast<size_t>(found - std::begin(points));
  };
  return point <= 0xFFFF ? place_in(kDecomposed, 0) : place_in(kDecomposedBeyond, kNear);
}

void decompose(uint32_t point, std::vector<uint32_t>& parts) {
  const uint32_t syllable = point - kSyllables;
  if (syllable < kSyllableCount) {
    parts.push_back(kLeads + syllable / (kVowelCount * kTailCount));
    parts.push_back(kVowels + syllable / kTailCount % kVowelCount);
    if (syllable % kTailCount != 0) parts.push_back(kTails + syllable % kTailCount);
    return;
  }
  const size_t place = place_of(point);
  if (place == std::size(kParts)) return parts.push_back(point);
  const Parts found = parts_at(place);
  decompose(found.first, parts);
  if (found.second != 0) decompose(found.second, parts);
}

// The primary composite of two code points; 0 if there is none.
uint32_t composite(uint32_t first, uint32_t second) {
  if (first - kLeads < kLeadCount && second - kVowels < kVowelCount) {
    return kSyllables + ((first - kLeads) * kVowelCount + (second - kVowels)) * kTailCount;
  }
  if (first - kSyllables < kSyllableCount && (first - kSyllables) % kTailCount == 0 &&
      second - kTails - 1 < kTailCount - 1) {
    return first + (second - kTails);
  }
  const auto is_below = [&](uint16_t place, Parts wanted) {
    const Parts parts = parts_at(place);
    return parts.first != wanted.first ? parts.first < wanted.first : parts.second < wanted.second;
  };
  const uint16_t* found =
      std::lower_bound(std::begin(kComposites), std::end(kComposites), Parts{first, second}, is_below);
  if (found == std::end(kComposites)) return 0;
  const Parts parts = parts_at(*found);
  if (parts.first != first || parts.second != second) return 0;
  constexpr size_t kNear = std::size(kDecomposed);
  return *found < kNear ? kDecomposed[*found] : kDecomposedBeyond[*found - kNear];
}

// Canonical ordering: marks between two starters rise by combining class.
void order(std::vector<uint32_t>& points) {
  const auto combining = [](uint32_t point) { return code_point(point).combining_class(); };
  for (auto begin = points.begin(); begin != points.end();) {
    const auto end = std::find_if(begin, points.end(), [&](uint32_t point) { return combining(point) == 0; });
    std::stable_sort(begin, end, [&](uint32_t one, uint32_t other) { return combining(one) < combining(other); });
    begin = end == points.end() ? end : end + 1;
  }
}

void compose(std::vector<uint32_t>& points) {
  size_t kept = 0, starter = points.size();
  uint32_t last = 0;  // combining class of the point kept last, after the starter
  for (const uint32_t point : points) {
    const uint32_t combining = code_point(point).combining_class();
    const bool adjacent = starter + 1 == kept;
    if (starter < kept && (adjacent || last < combining)) {
      if (const uint32_t composed = composite(points[starter], point)) {
        points[starter] = composed;
        continue;
      }
    }
    if (combining == 0) starter = kept;
    last = combining;
    points[kept++] = point;
  }
  points.resize(kept);
}

// I with a dot, which comes as two parts, is i; I without one has none in lower case either.
void fold_turkish(std::vector<uint32_t>& points) {
  constexpr uint32_t kDot = 0x307, kDotless = 0x131;
  size_t kept = 0;
  for (size_t at = 0; at < points.size(); ++at) {
    const bool dotted = points[at] == 'I' && at + 1 < points.size() && points[at + 1] == kDot;
    points[kept++] = dotted ? 'i' : points[at] == 'I' ? kDotless : points[at];
    at += dotted;
  }
  points.resize(kept);
}

}  // namespace

Character rare_character(std::string_view text, size_t at) {
  const std::string_view rest = text.substr(at);
  const size_t length = utf8_length(rest);
  if (length == 0) {
    return {static_cast<unsigned char>(text[at]), 1, false, {static_cast<uint32_t>(WordClass::letter)}};
  }
  const uint32_t point = utf8_point(rest.substr(0, length));
  return {point, static_cast<uint8_t>(length), true, code_point(point)};
}

uint32_t fold_case(uint32_t point) {
  const Folding* found = std::partition_point(std::begin(kFoldings), std::end(kFoldings),
                                              [&](const Folding& one) { return one.last < point; });
  const bool folds = found != std::end(kFoldings) && found->first <= point && (point - found->first) % found->step == 0;
  return folds ? point + static_cast<uint32_t>(found->difference) : point;
}

uint32_t capital_of(uint32_t point) {
  // Lower-case letters that fold to another come before its capital: the micro sign, a mark below Greek letters. Small
  // Cherokee letters fold to large ones.
  const auto is_lower = [](uint32_t from) { return from == 0xB5 || from == 0x345 || from == 0x13F8 || from >= 0xAB70; };
  if (point < 0x80) return point >= 'a' && point <= 'z' ? point - 32 : point;
  for (const Folding& one : kFoldings) {
    const uint32_t from = point - static_cast<uint32_t>(one.difference);
    if (from < one.first || from > one.last || (from - one.first) % one.step != 0) continue;
    if (!is_lower(one.first) || from >= 0x10000) return from;
  }
  return point;
}

bool compose_together(uint32_t starter, uint32_t point) {
  return composite(starter, point) != 0 || place_of(starter) < std::size(kParts) ||
         starter - kSyllables < kSyllableCount;
}

void fold_and_compose(std::vector<uint32_t>& points, Letters letters) {
  std::vector<uint32_t> parts;
  for (const uint32_t point : points) decompose(point, parts);
  order(parts);
  if (letters == Letters::turkish) fold_turkish(parts);
  if (letters != Letters::as_written) std::transform(parts.begin(), parts.end(), parts.begin(), fold_case);
  compose(parts);
  points.swap(parts);
}

}  // namespace phonograd
