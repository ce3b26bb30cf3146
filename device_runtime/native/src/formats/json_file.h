// Small JSON files that a phone keeps for itself.
#pragma once

#include <string>

#include "formats/json.h"
#include "formats/json_line.h"

namespace phonograd::json {

// Whether there is a file at a path.
bool is_there(const std::string& path);

// Read one. The text is wiped. Throws Error: state if it can't be read, holds more than 64 MiB or is not JSON.
Value read_own(const std::string& path);

// Write one atomically, readable by its owner alone. The text is wiped. Throws Error(storage).
void write_own(const std::string& path, const JsonLine& line);

}  // namespace phonograd::json
