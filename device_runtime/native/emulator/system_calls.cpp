// Android's emulator on a PC: functions of the C library, by system calls that apps may use.
//
// Android's seccomp filter ends an app's process at a system call that Android's own C library has no use for. musl
// uses the oldest ones: stat, rename and others, which x86-64 has and arm64 never had. These definitions come before
// musl's, because the linker takes a library's object only for what is still undefined. Contract and thread safety are
// POSIX's.

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

extern "C" {

// On x86-64, musl's struct stat is the kernel's.
int stat(const char* path, struct stat* out) {
  return static_cast<int>(syscall(SYS_newfstatat, AT_FDCWD, path, out, 0));
}

int lstat(const char* path, struct stat* out) {
  return static_cast<int>(syscall(SYS_newfstatat, AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW));
}

int access(const char* path, int mode) {
  return faccessat(AT_FDCWD, path, mode, 0);
}

int mkdir(const char* path, mode_t mode) {
  return mkdirat(AT_FDCWD, path, mode);
}

int rename(const char* from, const char* to) {
  return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

int unlink(const char* path) {
  return unlinkat(AT_FDCWD, path, 0);
}

int rmdir(const char* path) {
  return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

int remove(const char* path) {
  const int failed = unlink(path);
  return failed != 0 && errno == EISDIR ? rmdir(path) : failed;
}

ssize_t readlink(const char* path, char* out, size_t size) {
  return readlinkat(AT_FDCWD, path, out, size);
}
}
