// This process's memory.
#pragma once

#include <cstdint>

namespace phonograd {

// The peak resident memory in bytes so far (VmHWM); 0 if /proc does not have it.
int64_t peak_rss_bytes();

}  // namespace phonograd
