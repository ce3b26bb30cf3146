// Bytes of a file or command line, shown in a message.
#pragma once

#include <string>
#include <string_view>

namespace phonograd {

// Bytes between quotes, on one line, as Python's repr shows text: control characters and quotes are escaped. A byte
// that is no UTF-8 is shown as U+FFFD. Beyond Latin-1, of what does not print only line and paragraph separators are
// escaped. Thread-safe.
std::string quoted(std::string_view bytes);

}  // namespace phonograd
