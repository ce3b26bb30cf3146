#include "text/vocabulary.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "formats/utf8.h"
#include "text/tokens.h"

namespace phonograd {
namespace {

constexpr size_t kMostDigits = 15;   // exact as a double, also with the half that the output sample adds
constexpr size_t kQuotedBytes = 40;  // of a word in an error: another file given as the vocabulary may have huge lines

std::string quoted_start(std::string_view word) {
  return quote_text(word.substr(0, kQuotedBytes));
}

// Removes one line from `rest`; false after the last.
bool next_line(std::string_view& rest, bool& more, std::string_view& line) {
  if (!more) return false;
  const size_t end = std::min(rest.find('\n'), rest.size());
  line = rest.substr(0, end);
  more = end < rest.size();
  rest.remove_prefix(more ? end + 1 : end);
  return true;
}

// Removes what stands before the first tab of `line`, and the tab.
std::string_view next_field(std::string_view& line) {
  const std::string_view field = line.substr(0, line.find('\t'));
  line.remove_prefix(std::min(line.size(), field.size() + 1));
  return field;
}

// The number that a text of at most 15 digits without leading zeros is; -1 for another text.
int64_t count_of(std::string_view digits) {
  if (digits.empty() || digits.size() > kMostDigits || (digits.size() > 1 && digits[0] == '0')) return -1;
  int64_t count = 0;
  for (const char digit : digits) {
    if (digit < '0' || digit > '9') return -1;
    count = 10 * count + (digit - '0');
  }
  return count;
}

void check_beginning(std::string_view data, const std::string& source) {
  bool more = true;
  std::string_view first, second;
  next_line(data, more, first);
  const bool two = next_line(data, more, second);
  first = next_field(first), second = next_field(second);
  if (first == "<unk>" && second == "<eos>") return;
  throw Error(Status::vocabulary, source + ": lines 1 and 2 must be <unk> and <eos>, found " + quoted_start(first) +
                                      (two ? " and " + quoted_start(second) : ""));
}

uint32_t hash_of(std::string_view word) {
  uint64_t hash = word.size();
  while (!word.empty()) {
    uint64_t part = 0;
    const size_t count = std::min(word.size(), sizeof part);
    std::memcpy(&part, word.data(), count);
    word.remove_prefix(count);
    hash = (hash ^ part) * 0x9E3779B97F4A7C15;
    hash ^= hash >> 32;
  }
  return static_cast<uint32_t>(hash);
}

}  // namespace

Vocabulary::Vocabulary(std::string data, const std::string& source) : data_(std::move(data)) {
  std::string_view rest = data_, line;
  if (!rest.empty() && rest.back() == '\n') rest.remove_suffix(1);
  check_beginning(rest, source);
  size_t places = 4;
  for (const auto lines = std::count(rest.begin(), rest.end(), '\n'); places < 2 * static_cast<size_t>(lines + 1);)
    places *= 2;
  ids_.resize(places);
  for (bool more = true; next_line(rest, more, line);) add(line, source);
  for (int64_t id = 0; id < size(); ++id) path_.add(word(id), counts_[static_cast<size_t>(id)]);
}

void Vocabulary::add(std::string_view line, const std::string& source) {
  constexpr int64_t kMostByZipf = 1000000;
  const int64_t number = size();
  const auto fail = [&](const std::string& found) {
    throw Error(Status::vocabulary, source + ": line " + std::to_string(number + 1) + found);
  };
  const std::string_view word = next_field(line);
  if (word.empty()) fail(" is empty, expected a word");
  Entry& entry = ids_[place_of(word)];
  if (entry.number != 0) {
    throw Error(Status::vocabulary, source + ": " + quoted_start(word) + " is on lines " +
                                        std::to_string(entry.number) + " and " + std::to_string(number + 1) +
                                        "; each word must appear once");
  }
  entry = {hash_of(word), static_cast<uint32_t>(number + 1)};
  if (number == 0) has_counts_ = !line.empty();
  if (has_counts_ == line.empty()) fail(": a count expected on every line or on none");
  words_.push_back(word);
  counts_.push_back(has_counts_ ? count_of(next_field(line)) : (kMostByZipf + number / 2) / (number + 1));
  if (counts_.back() < 0) fail(": " + quoted_start(word) + ", a tab and a whole number of at most 15 digits expected");
  if (number == kUnk && line == "turkish") letters_ = Letters::turkish;
  if (number == kUnk && !line.empty() && line != "turkish") fail(": turkish or nothing expected after the count");
  if (number != kUnk && !line.empty() && fold(line, letters_) != word) {
    fail(": another way to write " + quoted_start(word) + " expected, found " + quoted_start(line) +
         "; leave it out, or count the forms with: phonograd vocab build TEXT --words VOCAB");
  }
  forms_.push_back(number == kUnk ? std::string_view() : line);
}

Vocabulary::Vocabulary(const std::string& path, int64_t size)
    : Vocabulary(read_file(path, kMaxVocabularyBytes, Status::vocabulary), path) {
  if (this->size() == size) return;
  throw Error(Status::vocabulary, path + ": " + std::to_string(size) + " words expected by the model, found " +
                                      std::to_string(this->size()));
}

// Where a word is in the table, or the empty place where it belongs.
size_t Vocabulary::place_of(std::string_view word) const {
  const uint32_t hash = hash_of(word);
  for (size_t at = hash;; ++at) {
    const size_t place = at & (ids_.size() - 1);
    const Entry& one = ids_[place];
    if (one.number == 0 || (one.hash == hash && words_[one.number - 1] == word)) return place;
  }
}

int64_t Vocabulary::id(std::string_view word) const {
  const uint32_t number = ids_[place_of(word)].number;
  return number == 0 ? kUnk : number - 1;
}

void Vocabulary::encode(std::string_view message, std::vector<int64_t>& ids) const {
  Tokens tokens(message, path_, letters_);
  for (std::string_view token; tokens.next(token);) ids.push_back(id(token));
}

std::vector<int64_t> Vocabulary::stream(const std::vector<std::string_view>& messages) const {
  std::vector<int64_t> ids;
  for (const std::string_view message : messages) {
    encode(message, ids);
    ids.push_back(kEos);
  }
  return ids;
}

}  // namespace phonograd
