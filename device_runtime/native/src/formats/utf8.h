// UTF-8, as RFC 3629 has it: no overlong forms, no surrogates, nothing past U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace phonograd {

// Bytes of the character that `text` begins with; 0 if it begins with none (or is empty).
size_t utf8_length(std::string_view text);

// The code point of one character, which utf8_length found to be one.
uint32_t utf8_point(std::string_view character);

// Appends a code point, which must be no surrogate and at most U+10FFFF.
void append_utf8(uint32_t point, std::string* out);

// Quotes bytes of a file or command line for a message: on one line, like Python's repr, with control characters and
// quotes escaped. Invalid UTF-8 is shown as U+FFFD. Of the unprintable characters beyond Latin-1, only line and
// paragraph separators are escaped. Thread-safe.
std::string quote_text(std::string_view bytes);

// Foreign text for a terminal, which would obey control characters and those that turn the direction of writing: they
// are shown, such as \x1b. Invalid UTF-8 is shown as U+FFFD. Thread-safe.
std::string visible(std::string_view bytes);

}  // namespace phonograd
