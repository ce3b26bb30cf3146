#include "text/counts.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/files.h"
#include "formats/utf8.h"

namespace phonograd {
namespace {

constexpr size_t kMostDigits = 15;  // exact as a double, also with the half that the output sample adds
constexpr size_t kMostBytes = 2 * kMaxVocabularyBytes;
constexpr size_t kShownBytes = 60;

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

}  // namespace

std::vector<int64_t> load_counts(const std::string& path, const Vocabulary& vocabulary, const std::string& remedy) {
  const std::string data = read_file(path, kMostBytes, Status::vocabulary);
  std::string_view rest = data;
  if (!rest.empty() && rest.back() == '\n') rest.remove_suffix(1);
  const int64_t lines = 1 + std::count(rest.begin(), rest.end(), '\n');
  if (lines != vocabulary.size()) {
    throw Error(Status::vocabulary, path + ": " + std::to_string(vocabulary.size()) +
                                        " lines expected, one a word, found " + std::to_string(lines) + "; " + remedy);
  }
  std::vector<int64_t> counts;
  for (int64_t id = 0; id < lines; ++id) {
    const std::string_view line = rest.substr(0, rest.find('\n')), word = vocabulary.word(id);
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const bool fits = line.size() > word.size() && line.substr(0, word.size()) == word && line[word.size()] == '\t';
    counts.push_back(fits ? count_of(line.substr(word.size() + 1)) : -1);
    if (counts.back() >= 0) continue;
    throw Error(Status::vocabulary, path + ": line " + std::to_string(id + 1) + ": " +
                                        quote_text(word.substr(0, kShownBytes)) +
                                        ", a tab and a whole number of at most 15 digits expected, found " +
                                        quote_text(line.substr(0, kShownBytes)) + "; " + remedy);
  }
  return counts;
}

}  // namespace phonograd
