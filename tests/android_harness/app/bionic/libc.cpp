// What Android's C library has otherwise than glibc on x86-64, of the names in device_runtime/native/android. All other
// names are glibc's own, whose types have the same sizes there.
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdlib>
#include <cstring>

namespace {

// On 64 bits, by bionic's bits/signal_types.h.
struct Action {
  int flags;
  void (*handler)(int);
  unsigned long mask;
  void (*restorer)();
};

constexpr int kLocaleMask = 0x1fbf, kPageSize = 0x27;

}  // namespace

extern "C" {

int __sigaction(int number, const struct sigaction* action, struct sigaction* before);
locale_t __newlocale(int mask, const char* name, locale_t base);
int __xpg_strerror_r(int number, char* buffer, size_t bytes);

int* __errno() {
  return &errno;
}

void android_set_abort_message(const char*) {}

int android_sigaction(int number, const Action* action, Action* before) __asm__("sigaction");
int android_sigaction(int number, const Action* action, Action* before) {
  struct sigaction ours{}, found{};
  ours.sa_flags = action->flags;
  ours.sa_handler = action->handler;
  std::memcpy(&ours.sa_mask, &action->mask, sizeof action->mask);
  const int result = __sigaction(number, &ours, &found);
  *before = {found.sa_flags, found.sa_handler, 0, nullptr};
  return result;
}

locale_t android_newlocale(int mask, const char* name, locale_t base) __asm__("newlocale");
locale_t android_newlocale(int mask, const char* name, locale_t base) {
  if ((mask & ~kLocaleMask) == 0) return __newlocale(mask, name, base);
  errno = EINVAL;
  return nullptr;
}

int android_strerror_r(int number, char* buffer, size_t bytes) __asm__("strerror_r");
int android_strerror_r(int number, char* buffer, size_t bytes) {
  return __xpg_strerror_r(number, buffer, bytes);
}

long android_sysconf(int name) __asm__("sysconf");
long android_sysconf(int name) {
  if (name != kPageSize) std::abort();
  return getpagesize();
}

}  // extern "C"
