#include "formats/frozen.h"

#include <algorithm>

#include "formats/utf8.h"

namespace phonograd {
namespace {

constexpr const char* kFrozen = "frozen";

}  // namespace

std::set<std::string> frozen_in(const std::string& path, const std::map<std::string, std::string>& metadata,
                                const std::vector<TensorSpec>& specs) {
  std::set<std::string> names;
  const auto entry = metadata.find(kFrozen);
  if (entry == metadata.end()) return names;
  const auto fail = [&path](const std::string& found) {
    throw Error(Status::weights, path + ": frozen: names of some of its tensors expected, found " + found);
  };
  const std::string& text = entry->second;
  for (size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
    end = text.find(',', begin);
    names.insert(text.substr(begin, end == std::string::npos ? end : end - begin));
  }
  for (const std::string& name : names) {
    const bool known =
        std::any_of(specs.begin(), specs.end(), [&](const TensorSpec& spec) { return spec.name == name; });
    if (!known) fail(quote_text(name.substr(0, 80)) + ", which it has not; export again");
  }
  if (names.size() == specs.size()) fail("all of them; export again");
  return names;
}

std::map<std::string, std::string> frozen_metadata(const std::map<std::string, std::string>& metadata) {
  std::map<std::string, std::string> kept;
  if (const auto entry = metadata.find(kFrozen); entry != metadata.end()) kept.insert(*entry);
  return kept;
}

}  // namespace phonograd
