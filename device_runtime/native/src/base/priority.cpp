#include "base/priority.h"

#include <sys/resource.h>

#include <cerrno>
#include <string>

#include "base/error.h"
#include "base/files.h"

namespace phonograd {

// Linux keeps a nice value for each thread; id 0 is the calling one. On macOS it is the whole process.
int priority() {
  return getpriority(PRIO_PROCESS, 0);
}

void lower_priority(int nice) {
  if (nice <= priority() || setpriority(PRIO_PROCESS, 0, nice) == 0) return;
  throw Error(Status::unsupported,
              "`nice` " + std::to_string(nice) + ": the kernel refused: " + reason_of(errno) + "; leave it out");
}

}  // namespace phonograd
