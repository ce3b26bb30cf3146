#include "base/random_bytes.h"

#include <fcntl.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/error.h"
#include "base/files.h"

namespace phonograd {
namespace {

// Reads on, `take` being as read(), until there are enough. False with errno set if there are none.
template <class Take>
bool fill(char* out, size_t bytes, Take take) {
  while (bytes > 0) {
    const ssize_t count = take(out, bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    out += count, bytes -= static_cast<size_t>(count);
  }
  return true;
}

// What macOS has, and kernels before 3.17 have instead of the system call, some of Android 8's among them.
bool fill_from_device(char* out, size_t bytes) {
  const int device = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
  if (device < 0) return false;
  const bool filled = fill(out, bytes, [&](char* to, size_t most) { return read(device, to, most); });
  const int reason = errno;
  close(device);
  errno = reason;
  return filled;
}

}  // namespace

void random_bytes(void* out, size_t bytes) {
  char* to = static_cast<char*>(out);
#if defined(__linux__)
  // The C libraries of glibc 2.17 and Android 8 have no getrandom().
  bool filled = fill(to, bytes, [](char* at, size_t most) -> ssize_t { return syscall(SYS_getrandom, at, most, 0); });
  if (!filled && errno == ENOSYS) filled = fill_from_device(to, bytes);
#else
  const bool filled = fill_from_device(to, bytes);
#endif
  if (filled) return;
  throw Error(Status::unsupported, "random numbers: the system gave none (" + reason_of(errno) +
                                       "); let the process use getrandom() or /dev/urandom");
}

}  // namespace phonograd
