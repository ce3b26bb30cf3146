// Random bytes where the system call getrandom fails with the error number given: 32 of them in hexadecimal, or why
// not.
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "base/random_bytes.h"

namespace {
int reason;
}

extern "C" long syscall(long, ...) {  // in the C library's place
  errno = reason;
  return -1;
}

int main(int, char** arguments) {
  reason = std::atoi(arguments[1]);
  unsigned char bytes[32] = {};
  try {
    phonograd::random_bytes(bytes, sizeof bytes);
  } catch (const phonograd::Error& error) {
    std::puts(error.what());
    return static_cast<int>(error.status());
  }
  for (const unsigned char byte : bytes) std::printf("%02x", byte);
}
