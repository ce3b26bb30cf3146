// The vocabulary: one word a line, line number = id. FORMAT.md, "Vocabulary".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace phonograd {

constexpr int64_t kUnk = 0, kEos = 1;

// A vocabulary of a million words takes about 8 MiB.
constexpr size_t kMaxVocabularyBytes = size_t{16} << 20;

// Words by id and ids by word. Owns the file's bytes, into which the words are views, so it is not movable. Const
// methods are thread-safe.
class Vocabulary {
 public:
  // From a file's bytes; `source` names it in messages. Throws Error(vocabulary) if lines 1 and 2 are not <unk> and
  // <eos>, a line is empty, or a word appears twice.
  Vocabulary(std::string data, const std::string& source);
  // From a file that must hold `size` words. Also throws Error(vocabulary) if it can't be read or has another size.
  static Vocabulary load(const std::string& path, int64_t size) { return Vocabulary(path, size); }
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  int64_t size() const { return static_cast<int64_t>(words_.size()); }
  std::string_view word(int64_t id) const { return words_[static_cast<size_t>(id)]; }
  int64_t id(std::string_view word) const;  // kUnk if the word is unknown

  // Append the ids of a message's tokens, unknown words as kUnk, without <eos>.
  void encode(std::string_view message, std::vector<int64_t>& ids) const;
  // The token stream [N] of messages, each followed by <eos>.
  std::vector<int64_t> stream(const std::vector<std::string_view>& messages) const;

 private:
  Vocabulary(const std::string& path, int64_t size);

  const std::string data_;
  std::vector<std::string_view> words_;
  std::unordered_map<std::string_view, int64_t> ids_;
};

}  // namespace phonograd
