// The names that phones have at a server.
#pragma once

#include <string>

namespace phonograd {

// Throws Error(usage) unless a phone may have this name.
void check_phone_name(const std::string& name);

}  // namespace phonograd
