#pragma once

#include <time.h>

namespace phonograd {

// Sleep, shorter if a signal comes. By clock_nanosleep, which Android's filter of system calls lets apps make; the C
// library's other ways end in nanosleep here. macOS has that alone.
inline void sleep_for(double seconds) {
  const auto whole = static_cast<time_t>(seconds);
  const timespec time{whole, static_cast<long>((seconds - static_cast<double>(whole)) * 1e9)};
#if defined(__APPLE__)
  nanosleep(&time, nullptr);
#else
  clock_nanosleep(CLOCK_MONOTONIC, 0, &time, nullptr);
#endif
}

}  // namespace phonograd
