// libFuzzer target: any bytes as vocab.txt are refused with Error(vocabulary), or give words that find themselves.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "text/kss.h"
#include "text/vocabulary.h"

using namespace phonograd;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const Vocabulary vocabulary(std::string(reinterpret_cast<const char*>(data), size), "fuzz");
    const PrefixIndex index(vocabulary);
    const std::vector<float> scores(static_cast<size_t>(vocabulary.size()));
    size_t bytes = 0;
    for (int64_t id = 0; id < vocabulary.size(); ++id) {
      const std::string_view word = vocabulary.word(id);
      if (vocabulary.id(word) != id) std::abort();
      const bool suggested = id <= kEos + static_cast<int64_t>(kSuggestions);  // of equal scores, the first three
      if (id > kEos && (index.keystrokes(id, scores.data(), true) == 0) != suggested) std::abort();
      bytes += word.size() + 1;
      const std::string_view form = vocabulary.form(id).empty() ? word : vocabulary.form(id);
      for (const Shift shift : {Shift::none, Shift::first, Shift::all}) {
        const std::string shown = show(form, word, shift, SentencePlace::middle, vocabulary.letters());
        if (shift == Shift::none && shown != form && fold(shown, vocabulary.letters()) != word) std::abort();
      }
    }
    if (bytes > size + 1) std::abort();
  } catch (const Error& error) {
    if (error.status() != Status::vocabulary) std::abort();
  }
  return 0;
}
