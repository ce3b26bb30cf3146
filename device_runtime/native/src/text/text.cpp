#include "text/text.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/files.h"

namespace phonograd {
namespace {

bool is_space(char byte) {
  return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

// The token class [a-z0-9\x80-\xff], of folded bytes.
bool is_word(char byte) {
  return (byte >= 'a' && byte <= 'z') || (byte >= '0' && byte <= '9') || static_cast<unsigned char>(byte) >= 0x80;
}

constexpr std::string_view kUnknown = "<unk>";  // in published texts, a word that the authors left out: one token

// A typographic mark in UTF-8 and its ASCII equivalent. Marks do not overlap and hold no ASCII, so one pass from the
// left equals replacing one mark after the other.
struct Mark {
  std::string_view bytes, plain;
};
constexpr Mark kMarks[] = {
    {"\xe2\x80\x98", "'"},    // U+2018
    {"\xe2\x80\x99", "'"},    // U+2019
    {"\xe2\x80\x9c", "\""},   // U+201C
    {"\xe2\x80\x9d", "\""},   // U+201D
    {"\xe2\x80\xa6", "..."},  // U+2026
    {"\xe2\x80\x93", "-"},    // U+2013
    {"\xe2\x80\x94", "-"},    // U+2014
    {"\xc2\xa0", " "},        // U+00A0
};

const Mark* mark_at(std::string_view text, size_t at) {
  if (text[at] != '\xe2' && text[at] != '\xc2') return nullptr;
  for (const Mark& mark : kMarks) {
    if (text.compare(at, mark.bytes.size(), mark.bytes) == 0) return &mark;
  }
  return nullptr;
}

// Every byte but space belongs to some token, so a line holds a token if it has anything but spaces.
bool holds_token(std::string_view line) {
  for (size_t at = 0; at < line.size();) {
    const Mark* mark = mark_at(line, at);
    if (!is_space(mark ? mark->plain[0] : line[at])) return true;
    at += mark ? mark->bytes.size() : 1;
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

std::string fold(std::string_view text) {
  std::string folded;
  folded.reserve(text.size());  // a mark is at least as long as its equivalent
  for (size_t at = 0; at < text.size();) {
    if (const Mark* mark = mark_at(text, at)) {
      folded += mark->plain;
      at += mark->bytes.size();
    } else {
      const char byte = text[at++];
      folded += byte >= 'A' && byte <= 'Z' ? static_cast<char>(byte - 'A' + 'a') : byte;
    }
  }
  return folded;
}

bool Tokens::next(std::string_view& token) {
  while (at_ < folded_.size() && is_space(folded_[at_])) ++at_;
  if (at_ == folded_.size()) return false;
  const size_t begin = at_;
  if (folded_.compare(begin, kUnknown.size(), kUnknown) == 0) {
    at_ += kUnknown.size();
    token = kUnknown;
    return true;
  }
  const auto word_at = [this](size_t at) { return at < folded_.size() && is_word(folded_[at]); };
  if (!word_at(at_++)) {  // a punctuation mark, alone
    token = std::string_view(folded_).substr(begin, 1);
    return true;
  }
  // An apostrophe belongs to the word if the word continues after it.
  while (word_at(at_) || (at_ < folded_.size() && folded_[at_] == '\'' && word_at(at_ + 1))) ++at_;
  token = std::string_view(folded_).substr(begin, at_ - begin);
  return true;
}

bool next_piece(std::string_view& rest, std::string_view& piece) {
  const auto begin = std::find_if_not(rest.begin(), rest.end(), is_space);
  const auto end = std::find_if(begin, rest.end(), is_space);
  piece = rest.substr(static_cast<size_t>(begin - rest.begin()), static_cast<size_t>(end - begin));
  rest.remove_prefix(static_cast<size_t>(end - rest.begin()));
  return !piece.empty();
}

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
    std::string data = read_file(path, kMaxTextBytes, Status::text);
    if (data.compare(0, 3, "\xef\xbb\xbf") == 0) data.erase(0, 3);  // UTF-8's mark, which is no part of the first word
    return data;
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
