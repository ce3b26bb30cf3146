// The file of a store of personal words: a line with its checksum, and a JSON object. FORMAT.md, "Personal words".
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "base/crc32.h"
#include "base/error.h"
#include "base/files.h"
#include "base/path_lock.h"
#include "formats/json.h"
#include "formats/utf8.h"
#include "personal/words.h"
#include "text/tokens.h"

namespace phonograd {
namespace {

constexpr std::string_view kFirstWord = "phonograd-personal-1";
constexpr size_t kMaxFileBytes = size_t{8} << 20;

std::string first_line(std::string_view document) {
  char checksum[9];
  std::snprintf(checksum, sizeof checksum, "%08x", crc32(0, document.data(), document.size()));
  return std::string(kFirstWord) + " " + checksum + "\n";
}

std::string list_of(const std::vector<std::string>& values) {
  std::string list = "[";
  for (const std::string& value : values) list += (list.size() > 1 ? "," : "") + value;
  return list + "]";
}

[[noreturn]] void refuse(const std::string& path, const std::string& reason) {
  throw Error(Status::state, path + ": a file of personal words expected, " + reason + "; delete it and begin again");
}

// A document's values, checked as they are taken.
struct Reader {
  const std::string& path;

  const json::Array& list(const json::Value* value, const char* what) const {
    const auto* array = value == nullptr ? nullptr : value->as<json::Array>();
    if (array == nullptr) refuse(path, std::string("found no list of ") + what);
    return *array;
  }
  int64_t integer(const json::Value& value, int64_t low, int64_t high, const char* what) const {
    const auto* number = value.as<int64_t>();
    if (number == nullptr || *number < low || *number > high) refuse(path, "found " + value.text() + " for " + what);
    return *number;
  }
  const std::string& text(const json::Value& value, const char* what) const {
    const auto* found = value.as<std::string>();
    if (found == nullptr) refuse(path, "found " + value.text() + " for " + what);
    return *found;
  }
  // A list of two.
  const json::Array& pair(const json::Value& value, const char* what) const {
    const json::Array& found = list(&value, what);
    if (found.size() != 2) refuse(path, "found " + value.text() + " for " + what);
    return found;
  }
};

}  // namespace

PersonalWords::PersonalWords(std::string path) : path_(std::move(path)) {
  clear();
  struct stat about;
  if (path_.empty() || (stat(path_.c_str(), &about) != 0 && errno == ENOENT)) return;
  read(read_file(path_, kMaxFileBytes, Status::state));
}

std::string PersonalWords::document() const {
  std::vector<std::string> weights, words, after, waiting, vetoed;
  for (const MixtureWeight& weight : weights_) {
    weights.push_back("[" + std::to_string(weight.own) + "," + std::to_string(weight.all) + "]");
  }
  for (size_t word = 1; word < words_.size(); ++word) {
    const auto& [spelling, count, forms] = words_[word];
    std::vector<std::string> entry{json::quote(spelling), std::to_string(count)};
    const auto plain = forms.find(spelling);
    if (!forms.empty()) entry.push_back(std::to_string(plain == forms.end() ? 0 : plain->second));
    for (const auto& [form, times] : forms) {
      if (form == spelling) continue;
      entry.push_back(json::quote(form));
      entry.push_back(std::to_string(times));
    }
    words.push_back(list_of(entry));
  }
  for (const auto& [context, followers] : followers_) {
    std::vector<std::string> numbers;
    for (const int64_t word : context) numbers.push_back(std::to_string(word));
    for (const Follower& follower : followers) {
      numbers.push_back(std::to_string(follower.word));
      numbers.push_back(std::to_string(follower.count));
    }
    after.push_back(list_of(numbers));
  }
  for (const auto& [key, count] : waiting_) {
    waiting.push_back("[\"" + std::to_string(key) + "\"," + std::to_string(count) + "]");
  }
  for (const std::string& word : vetoed_) vetoed.push_back(json::quote(word));
  return "{\"forgotten\":" + std::to_string(forgotten_) + (letters_ == Letters::turkish ? ",\"turkish\":true" : "") +
         ",\"weights\":" + list_of(weights) + ",\"words\":" + list_of(words) + ",\"after\":" + list_of(after) +
         ",\"waiting\":" + list_of(waiting) + ",\"vetoed\":" + list_of(vetoed) + "}\n";
}

void PersonalWords::save() {
  if (path_.empty()) throw Error(Status::usage, "personal words: opened without a file; open them with one to save");
  const PathLock others_wait(path_);
  PersonalWords merged(path_);
  // What was learned before another process forgot everything is forgotten with it.
  const bool forgotten = merged.forgotten_ > forgotten_;
  for (size_t at = 0; !forgotten && at < changes_.size(); ++at) changes_[at](merged);
  const std::string text = merged.document(), first = first_line(text);
  remove_partials(path_);
  AtomicFile file(path_, 0600);
  file.write(first.data(), first.size());
  file.write(text.data(), text.size());
  file.commit();
  merged.generation_ = generation_ + 1;
  *this = std::move(merged);
}

void PersonalWords::read(const std::string& file) {
  const std::string_view document = std::string_view(file).substr(std::min(file.find('\n'), file.size() - 1) + 1);
  if (file.empty() || file.compare(0, file.size() - document.size(), first_line(document)) != 0) {
    refuse(path_, "found another, or a damaged one");
  }
  const json::Value root = json::parse(document, Status::state, path_);
  const Reader reader{path_};
  const json::Value* forgotten = root.find("forgotten");
  if (forgotten == nullptr) refuse(path_, "found no count of times forgotten");
  forgotten_ = reader.integer(*forgotten, 0, int64_t{1} << 40, "times forgotten");
  const json::Value* turkish = root.find("turkish");
  if (turkish != nullptr && turkish->text() != "true") refuse(path_, "found " + turkish->text() + " for Turkish");
  letters_ = turkish == nullptr ? Letters::common : Letters::turkish;
  const json::Array& weights = reader.list(root.find("weights"), "weights");
  if (weights.size() != weights_.size()) refuse(path_, "found " + std::to_string(weights.size()) + " weights");
  for (size_t seen = 0; seen < weights.size(); ++seen) {
    const json::Array& pair = reader.pair(weights[seen], "a weight");
    const int64_t all = reader.integer(pair[1], 1, int64_t{1} << 40, "a weight");
    weights_[seen] = {reader.integer(pair[0], 0, all, "a weight"), all};
  }
  for (const json::Value& entry : reader.list(root.find("vetoed"), "vetoed words")) {
    vetoed_.insert(reader.text(entry, "a vetoed word"));
  }
  for (const json::Value& entry : reader.list(root.find("words"), "words")) {
    const json::Array& parts = reader.list(&entry, "a word");
    const size_t most = 3 + 2 * kMostForms;
    if (parts.size() < 2 || parts.size() > most || (parts.size() > 2 && parts.size() % 2 == 0)) {
      refuse(path_, "found " + entry.text() + " for a word");
    }
    const std::string& word = reader.text(parts[0], "a word");
    const auto count = static_cast<uint32_t>(reader.integer(parts[1], 1, kMostCounted, "a word's count"));
    const bool added = indices_.emplace(word_key(word), static_cast<uint32_t>(words_.size())).second;
    if (!added || !learnable(word) || fold(word, letters_) != word) {
      refuse(path_, "found the word " + quote_text(word) + " twice or not to be learned");
    }
    words_.push_back({word, count, {}});
    tokens_ += count;
    const int64_t plain = parts.size() == 2 ? 0 : reader.integer(parts[2], 0, kMostCounted, "how often");
    if (plain > 0) words_.back().forms.emplace(word, static_cast<uint32_t>(plain));
    for (size_t at = 3; at < parts.size(); at += 2) {
      const std::string& form = reader.text(parts[at], "how a word is written");
      const auto times = static_cast<uint32_t>(reader.integer(parts[at + 1], 1, kMostCounted, "how often"));
      const bool fits = fold(form) == word || fold(form, Letters::turkish) == word;  // learned with either vocabulary
      if (!fits || !words_.back().forms.emplace(form, times).second) {
        refuse(path_, "found " + quote_text(form) + " as a form of " + quote_text(word) + ", wrongly or twice");
      }
    }
  }
  const auto last = static_cast<int64_t>(words_.size()) - 1;
  for (const json::Value& entry : reader.list(root.find("after"), "followers")) {
    const json::Array& numbers = reader.list(&entry, "followers");
    if (numbers.size() < kPersonalOrders + 2 || numbers.size() % 2 != 0) refuse(path_, "found followers of nothing");
    Context context;
    for (size_t at = 0; at < context.size(); ++at) {
      context[at] = reader.integer(numbers[at], at == 0 ? 0 : kAny, last, "a context");
    }
    if (context[1] == -1 || followers_.count(context) != 0)
      refuse(path_, "found a context twice, or one without a word");
    std::vector<Follower>& followers = followers_[context];
    std::set<int64_t> words;
    for (size_t at = kPersonalOrders; at < numbers.size(); at += 2) {
      const int64_t word = reader.integer(numbers[at], 0, last, "a follower");
      if (!words.insert(word).second) refuse(path_, "found a follower twice");
      followers.push_back({static_cast<uint32_t>(word), static_cast<uint32_t>(reader.integer(
                                                            numbers[at + 1], 1, kMostCounted, "a follower's count"))});
    }
    follower_count_ += followers.size();
  }
  for (const json::Value& entry : reader.list(root.find("waiting"), "waiting words")) {
    const json::Array& pair = reader.pair(entry, "a waiting word");
    const std::string& digits = reader.text(pair[0], "a waiting word");
    const uint64_t key = std::strtoull(digits.c_str(), nullptr, 10);
    const auto count = static_cast<uint32_t>(reader.integer(pair[1], 1, kGuardedTimes - 1, "a waiting word's count"));
    if (std::to_string(key) != digits || !waiting_.emplace(key, count).second) {
      refuse(path_, "found " + quote_text(digits) + " as a waiting word, wrongly or twice");
    }
  }
}

std::string PersonalWords::list() const {
  std::vector<const PersonalWord*> sorted;
  for (size_t word = 1; word < words_.size(); ++word) sorted.push_back(&words_[word]);
  std::stable_sort(sorted.begin(), sorted.end(), [](const PersonalWord* one, const PersonalWord* other) {
    return one->count != other->count ? one->count > other->count : one->spelling < other->spelling;
  });
  std::vector<std::string> words, vetoed;
  for (const PersonalWord* word : sorted) {
    const std::string shown(word->forms.empty() ? word->spelling : word->form());
    words.push_back("{\"word\":" + json::quote(shown) + ",\"count\":" + std::to_string(word->count) + "}");
  }
  for (const std::string& word : vetoed_) vetoed.push_back(json::quote(word));
  const std::string text = document();
  return "{\"words\":" + list_of(words) + ",\"vetoed\":" + list_of(vetoed) +
         ",\"bytes\":" + std::to_string(first_line(text).size() + text.size()) + "}";
}

}  // namespace phonograd
