// The messages of a text. FORMAT.md, "Text".
// Functions are thread-safe; views point into the caller's bytes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace phonograd {

// Larger files are refused, because files are read whole.
constexpr size_t kMaxTextBytes = size_t{256} << 20;

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
