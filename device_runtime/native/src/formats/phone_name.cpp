#include "formats/phone_name.h"

#include <algorithm>

#include "base/error.h"
#include "formats/utf8.h"

namespace phonograd {
namespace {

constexpr size_t kNameLength = 64;

}  // namespace

void check_phone_name(const std::string& name) {
  const std::string others = "._-";
  const auto allowed = [&](char byte) {
    return (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z') || (byte >= '0' && byte <= '9') ||
           others.find(byte) != std::string::npos;
  };
  const bool folder = name == "." || name == "..";  // as a URL reads it
  const bool fits = !name.empty() && name.size() <= kNameLength && !folder;
  if (fits && std::all_of(name.begin(), name.end(), allowed)) return;
  throw Error(Status::usage,
              "`phone`: expected a name of 1 to 64 characters A-Z a-z 0-9 . _ - but neither . nor .., found " +
                  quote_text(name));
}

}  // namespace phonograd
