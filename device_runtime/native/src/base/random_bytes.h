// Random bytes from the operating system, for keys and for seeds that nobody may guess.
#pragma once

#include <cstddef>

namespace phonograd {

// Fills `out`. Waits only just after the system's start, until it has gathered enough. Throws Error(unsupported) if the
// system has none. Thread-safe.
void random_bytes(void* out, size_t bytes);

}  // namespace phonograd
