// A file in memory, for the readers that want a path: /proc/self/fd/N.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

// Its descriptor, or -1. By the system call: the C library of our programs, glibc 2.17, has no memfd_create.
inline int memory_file() {
  return static_cast<int>(syscall(SYS_memfd_create, "fuzz", 0u));
}
