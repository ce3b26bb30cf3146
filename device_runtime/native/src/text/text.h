// Messages and tokens of a text. All rules are on bytes, so that invalid UTF-8 is no special case. FORMAT.md, "Text".
// Functions are thread-safe; views point into the caller's bytes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace phonograd {

// Larger files are refused, because files are read whole.
constexpr size_t kMaxTextBytes = size_t{256} << 20;

// Step 1 of the rules: ASCII letters to lower case, typographic marks to their ASCII equivalents.
std::string fold(std::string_view text);

// The tokens of one message, one by one. Owns the folded message that the tokens point into.
class Tokens {
 public:
  explicit Tokens(std::string_view message) : folded_(fold(message)) {}
  Tokens(const Tokens&) = delete;
  Tokens& operator=(const Tokens&) = delete;

  // Sets `token` to the next token, valid as long as this object; returns false at the end.
  bool next(std::string_view& token);

 private:
  const std::string folded_;
  size_t at_ = 0;
};

// Takes what stands before the next space off a folded message; false if nothing is left. No token holds a space.
bool next_piece(std::string_view& rest, std::string_view& piece);

// The messages of a text: its lines (ended by a line feed) that hold a token.
std::vector<std::string_view> split_messages(std::string_view data);

// A text and its messages, at least one. Throws Error(text) if it can't be read, is too large, holds no message, or is
// not UTF-8: it has NUL bytes or a byte order mark of UTF-16 or UTF-32.
class Text {
 public:
  explicit Text(const std::string& path);
  Text(std::string data, const std::string& name);  // `name` is for messages
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;

  const std::vector<std::string_view>& messages() const { return messages_; }

 private:
  const std::string data_;
  const std::vector<std::string_view> messages_;  // views into data_
};

}  // namespace phonograd
