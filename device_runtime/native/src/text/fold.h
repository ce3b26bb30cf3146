// Text as it is compared: NFC, in lower case, without what is not seen. FORMAT.md, "Text", step 1. Thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "text/unicode.h"

namespace phonograd {

// Folding a folded text changes nothing.
std::string fold(std::string_view text, Letters letters = Letters::common);

}  // namespace phonograd
