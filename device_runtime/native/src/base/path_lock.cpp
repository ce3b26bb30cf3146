#include "base/path_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

namespace phonograd {

PathLock::PathLock(const std::string& path)
    : descriptor_(open((path + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
  while (descriptor_ >= 0 && flock(descriptor_, LOCK_EX) != 0 && errno == EINTR) {
  }
}

PathLock::~PathLock() {
  if (descriptor_ >= 0) close(descriptor_);
}

}  // namespace phonograd
