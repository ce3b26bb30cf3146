// The vocabulary: one word a line, line number = id. FORMAT.md, "Vocabulary".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/fold.h"
#include "text/word_path.h"

namespace phonograd {

constexpr int64_t kUnk = 0, kEos = 1;

// A vocabulary of a million words takes about 16 MiB.
constexpr size_t kMaxVocabularyBytes = size_t{32} << 20;

// Words by id and ids by word. Owns the file's bytes, into which the words are views, so it is not movable. Const
// methods are thread-safe.
class Vocabulary {
 public:
  // From a file's bytes; `source` names it in messages. Throws Error(vocabulary) if lines 1 and 2 are not <unk> and
  // <eos>, a line is empty or has no count where others have one, or a word appears twice.
  Vocabulary(std::string data, const std::string& source);
  // From a file that must hold `size` words. Also throws Error(vocabulary) if it can't be read or has another size.
  static Vocabulary load(const std::string& path, int64_t size) { return Vocabulary(path, size); }
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  int64_t size() const { return static_cast<int64_t>(words_.size()); }
  std::string_view word(int64_t id) const { return words_[static_cast<size_t>(id)]; }
  int64_t id(std::string_view word) const;  // kUnk if the word is unknown
  // How often each word [V] was seen in general text, or Zipf's law says so: at most 15 digits each.
  const std::vector<int64_t>& counts() const { return counts_; }
  // How a word is written where it is not as in the vocabulary; else "".
  std::string_view form(int64_t id) const { return forms_[static_cast<size_t>(id)]; }
  Letters letters() const { return letters_; }
  const WordFinder& finder() const { return path_; }

  // Append the ids of a message's tokens, unknown words as kUnk, without <eos>.
  void encode(std::string_view message, std::vector<int64_t>& ids) const;
  // The token stream [N] of messages, each followed by <eos>.
  std::vector<int64_t> stream(const std::vector<std::string_view>& messages) const;

 private:
  Vocabulary(const std::string& path, int64_t size);
  void add(std::string_view line, const std::string& source);
  size_t place_of(std::string_view word) const;

  const std::string data_;
  std::vector<std::string_view> words_, forms_;
  bool has_counts_ = false;
  std::vector<int64_t> counts_;
  // A hash table, at most half full.
  struct Entry {
    uint32_t hash, number;  // the id and one more; 0 in an empty place
  };
  std::vector<Entry> ids_;
  Letters letters_ = Letters::common;
  WordPath path_;
};

}  // namespace phonograd
