// Linked into a program, makes calls of the C library fail as on a machine without memory or disk space.
// PHONOGRAD_FAIL=CALL:N:REASON fails the N-th call (from 1) with errno REASON, N+ that one and all later ones; files of
// the system (descriptors 0 to 2 too) are left alone. At the end, PHONOGRAD_CALLS=FILE receives the number of calls.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

namespace {

char failing[32];
long first = 0;
int reason = 0;
bool onwards = false;
std::atomic<bool> counting{false};
std::atomic<long> calls{0};

__attribute__((constructor)) void arm() {
  const char* wish = getenv("PHONOGRAD_FAIL");
  char number[24] = "";
  if (wish == nullptr || sscanf(wish, "%31[a-z_]:%23[0-9+]:%d", failing, number, &reason) != 3) return;
  first = atol(number);
  onwards = strchr(number, '+') != nullptr;
  counting = true;
}

__attribute__((destructor)) void report() {
  const char* path = getenv("PHONOGRAD_CALLS");
  counting = false;
  if (path == nullptr) return;
  FILE* file = fopen(path, "w");
  if (file == nullptr) return;
  fprintf(file, "%ld", calls.load());
  fclose(file);
}

// Whether this call is to fail; errno is set then.
bool fails(const char* name) {
  if (!counting || strcmp(name, failing) != 0) return false;
  const long number = ++calls;
  if (number != first && !(onwards && number > first)) return false;
  errno = reason;
  return true;
}

}  // namespace

extern "C" long calls_made() {
  return calls;
}

// glibc's own, under the names it keeps for programs that replace malloc.
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* old, size_t size);
void* __libc_memalign(size_t alignment, size_t size);

#define REPLACED __attribute__((visibility("default")))
REPLACED void* malloc(size_t size) {
  return fails("malloc") ? nullptr : __libc_malloc(size);
}
REPLACED void* calloc(size_t count, size_t size) {
  return fails("malloc") ? nullptr : __libc_calloc(count, size);
}
REPLACED void* realloc(void* old, size_t size) {
  return fails("malloc") ? nullptr : __libc_realloc(old, size);
}
REPLACED void* memalign(size_t alignment, size_t size) {
  return fails("malloc") ? nullptr : __libc_memalign(alignment, size);
}
REPLACED void* aligned_alloc(size_t alignment, size_t size) {
  return fails("malloc") ? nullptr : __libc_memalign(alignment, size);
}
REPLACED int posix_memalign(void** made, size_t alignment, size_t size) {
  *made = fails("malloc") ? nullptr : __libc_memalign(alignment, size);
  return *made == nullptr ? ENOMEM : 0;
}

REPLACED void* mmap(void* address, size_t bytes, int protection, int flags, int descriptor, off_t offset) noexcept {
  if (fails("mmap")) return MAP_FAILED;
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, bytes, protection, flags, descriptor, offset));
}

REPLACED int pthread_create(pthread_t* thread, const pthread_attr_t* how, void* (*start)(void*),
                            void* argument) noexcept {
  if (fails("pthread_create")) return reason;
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  return reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"))(thread, how, start, argument);
}

REPLACED ssize_t write(int descriptor, const void* data, size_t bytes) {
  return fails("write") ? -1 : syscall(SYS_write, descriptor, data, bytes);
}
REPLACED ssize_t pwrite(int descriptor, const void* data, size_t bytes, off_t offset) {
  return fails("pwrite") ? -1 : syscall(SYS_pwrite64, descriptor, data, bytes, offset);
}
REPLACED ssize_t read(int descriptor, void* data, size_t bytes) {
  return fails("read") ? -1 : syscall(SYS_read, descriptor, data, bytes);
}
REPLACED ssize_t pread(int descriptor, void* data, size_t bytes, off_t offset) {
  return fails("pread") ? -1 : syscall(SYS_pread64, descriptor, data, bytes, offset);
}
REPLACED int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const int mode = va_arg(more, int);
  va_end(more);
  return fails("open") ? -1 : static_cast<int>(syscall(SYS_open, path, flags, mode));
}
REPLACED int close(int descriptor) {
  const bool failed = fails("close");  // Linux frees the descriptor all the same
  const int result = static_cast<int>(syscall(SYS_close, descriptor));
  if (failed) errno = reason;
  return failed ? -1 : result;
}
REPLACED int fsync(int descriptor) {
  return fails("fsync") ? -1 : static_cast<int>(syscall(SYS_fsync, descriptor));
}
REPLACED int rename(const char* from, const char* to) noexcept {
  return fails("rename") ? -1 : static_cast<int>(syscall(SYS_rename, from, to));
}
REPLACED int unlink(const char* path) noexcept {
  return fails("unlink") ? -1 : static_cast<int>(syscall(SYS_unlink, path));
}
REPLACED int mkdir(const char* path, mode_t mode) noexcept {
  return fails("mkdir") ? -1 : static_cast<int>(syscall(SYS_mkdir, path, mode));
}
REPLACED int flock(int descriptor, int operation) noexcept {
  return fails("flock") ? -1 : static_cast<int>(syscall(SYS_flock, descriptor, operation));
}
}
