#include "text/vocabulary.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "formats/utf8.h"
#include "text/text.h"

namespace phonograd {
namespace {

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

void check_beginning(std::string_view data, const std::string& source) {
  bool more = true;
  std::string_view first, second;
  next_line(data, more, first);
  const bool two = next_line(data, more, second);
  if (first == "<unk>" && second == "<eos>") return;
  throw Error(Status::vocabulary, source + ": lines 1 and 2 must be <unk> and <eos>, found " + quoted_start(first) +
                                      (two ? " and " + quoted_start(second) : ""));
}

}  // namespace

Vocabulary::Vocabulary(std::string data, const std::string& source) : data_(std::move(data)) {
  std::string_view rest = data_, word;
  if (!rest.empty() && rest.back() == '\n') rest.remove_suffix(1);
  check_beginning(rest, source);
  for (bool more = true; next_line(rest, more, word);) {
    const int64_t number = size();
    if (word.empty()) {
      throw Error(Status::vocabulary, source + ": line " + std::to_string(number + 1) + " is empty, expected a word");
    }
    const auto [entry, added] = ids_.emplace(word, number);
    if (!added) {
      throw Error(Status::vocabulary, source + ": " + quoted_start(word) + " is on lines " +
                                          std::to_string(entry->second + 1) + " and " + std::to_string(number + 1) +
                                          "; each word must appear once");
    }
    words_.push_back(word);
  }
}

Vocabulary::Vocabulary(const std::string& path, int64_t size)
    : Vocabulary(read_file(path, kMaxVocabularyBytes, Status::vocabulary), path) {
  if (this->size() == size) return;
  throw Error(Status::vocabulary, path + ": " + std::to_string(size) + " words expected by the model, found " +
                                      std::to_string(this->size()));
}

int64_t Vocabulary::id(std::string_view word) const {
  const auto entry = ids_.find(word);
  return entry == ids_.end() ? kUnk : entry->second;
}

void Vocabulary::encode(std::string_view message, std::vector<int64_t>& ids) const {
  Tokens tokens(message);
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
