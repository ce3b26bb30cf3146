// libFuzzer target: any bytes as a text give tokens that hold all of them but space, the layout of windows loses none,
// and any bytes typed find a range of words.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "formats/utf8.h"
#include "text/kss.h"
#include "text/text.h"
#include "text/tokens.h"
#include "text/unicode.h"
#include "text/vocabulary.h"
#include "text/windows.h"

using namespace phonograd;

namespace {

std::string without_spaces(std::string_view text) {
  std::string rest;
  for (size_t at = 0; at < text.size();) {
    const Character one = character_at(text, at);
    if (!one.valid || !(one.is.is_space() || one.point == 0x200B)) rest += text.substr(at, one.length);
    at += one.length;
  }
  return rest;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Vocabulary vocabulary("<unk>\n<eos>\na\nthe\nthem\n'\n\xc3\xa9\n", "fuzz");
  static const PrefixIndex index(vocabulary);
  const std::string_view text(reinterpret_cast<const char*>(data), size);

  std::string joined;
  const std::string plain = without_spaces(fold(text));
  const std::vector<std::string_view> messages = split_messages(text);
  for (const std::string_view message : messages) {
    Tokens tokens(message);
    std::string_view token;
    if (!tokens.next(token)) std::abort();  // a message holds a token
    do {
      if (token.empty() || without_spaces(token) != token) std::abort();
      joined += token;
    } while (tokens.next(token));
  }
  if (joined != plain) std::abort();

  const std::vector<int64_t> stream = vocabulary.stream(messages);
  const int64_t minibatch = 1 + static_cast<int64_t>(size % 5), bptt = 1 + static_cast<int64_t>(size / 5 % 7);
  const Windows windows(stream, minibatch, bptt);
  std::vector<int64_t> tokens(static_cast<size_t>(minibatch * bptt)), targets(tokens.size());
  int64_t predictions = 0;
  for (int64_t window = 0; window < windows.count(); ++window) {
    predictions += windows.fill(window, tokens.data(), targets.data());
  }
  if (predictions != static_cast<int64_t>(stream.size())) std::abort();

  const PrefixIndex::Range range = index.with_prefix(text);
  if (range.end - range.begin > vocabulary.size() - 2) std::abort();
  if (quote_text(text).find('\n') != std::string::npos) std::abort();
  return 0;
}
