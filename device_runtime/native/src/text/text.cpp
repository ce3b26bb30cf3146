#include "text/text.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "text/unicode.h"

namespace phonograd {
namespace {

// Whether anything is left of a line without its spaces and what is not seen.
bool holds_token(std::string_view line) {
  for (size_t at = 0; at < line.size();) {
    const Character one = character_at(line, at);
    if (!one.valid || (!one.is.is_space() && !one.is.is_unseen())) return true;
    at += one.length;
  }
  return false;
}

// UTF-16 or UTF-32 text or a binary file would train as words that nobody wrote.
void require_text(const std::string& name, std::string_view data) {
  using std::string_view_literals::operator""sv;
  const std::string_view mark = data.substr(0, 4);
  const bool wide = mark == "\xff\xfe\0\0"sv || mark == "\0\0\xfe\xff"sv;
  if (wide || mark.substr(0, 2) == "\xff\xfe" || mark.substr(0, 2) == "\xfe\xff") {
    const std::string encoding = wide ? "UTF-32" : "UTF-16";
    throw Error(Status::text, name + ": begins with a " + encoding +
                                  " byte order mark, expected UTF-8; convert it with: iconv -f " + encoding +
                                  " -t UTF-8");
  }
  const size_t at = data.find('\0');
  if (at != std::string_view::npos) {
    throw Error(Status::text,
                name + ": byte " + std::to_string(at) + " is NUL; expected UTF-8 text, one message a line");
  }
}

}  // namespace

std::vector<std::string_view> split_messages(std::string_view data) {
  std::vector<std::string_view> messages;
  for (size_t begin = 0; begin < data.size();) {
    const size_t end = std::min(data.find('\n', begin), data.size());
    const std::string_view line = data.substr(begin, end - begin);
    if (holds_token(line)) messages.push_back(line);
    begin = end + 1;
  }
  return messages;
}

namespace {

std::string text_file(const std::string& path) {
  try {
    return read_file(path, kMaxTextBytes, Status::text);
  } catch (const Error& error) {
    if (error.status() != Status::text) throw;
    throw Error(Status::text, std::string(error.what()) + "; expected a text, one message a line");
  }
}

}  // namespace

Text::Text(const std::string& path) : Text(text_file(path), path) {}

Text::Text(std::string data, const std::string& name) : data_(std::move(data)), messages_(split_messages(data_)) {
  if (data_.size() > kMaxTextBytes) {
    throw Error(Status::text, name + ": " + std::to_string(data_.size()) + " bytes, expected at most " +
                                  std::to_string(kMaxTextBytes) + "; give less text");
  }
  require_text(name, data_);
  if (messages_.empty()) {
    throw Error(Status::text, name + ": no words found in " + std::to_string(data_.size()) +
                                  " bytes; expected a text, one message a line");
  }
}

}  // namespace phonograd
