#include "base/peak_memory.h"

#include <cstdio>
#if defined(__APPLE__)
#include <sys/resource.h>
#endif

namespace phonograd {

#if defined(__APPLE__)

int64_t peak_rss_bytes() {
  rusage usage{};
  return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_maxrss : 0;  // bytes, on macOS
}

#else

int64_t peak_rss_bytes() {
  std::FILE* file = std::fopen("/proc/self/status", "re");
  if (file == nullptr) return 0;
  char line[256];
  long long kilobytes = 0;
  while (std::fgets(line, sizeof line, file) != nullptr) {
    if (std::sscanf(line, "VmHWM: %lld kB", &kilobytes) == 1) break;
  }
  std::fclose(file);
  return kilobytes * 1024;
}

#endif

}  // namespace phonograd
