// Counts what a training step allocates: for each artifacts folder, calls of malloc and its kin until the engine has
// taken its first step, and during four more. One JSON array on stdout.
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "engine/engine.h"

namespace {
std::atomic<long> calls{0};
}

// glibc's own, under the names it keeps for programs that replace malloc.
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* old, size_t size);
void* __libc_memalign(size_t alignment, size_t size);

#define REPLACED __attribute__((visibility("default")))
REPLACED void* malloc(size_t size) {
  return ++calls, __libc_malloc(size);
}
REPLACED void* calloc(size_t count, size_t size) {
  return ++calls, __libc_calloc(count, size);
}
REPLACED void* realloc(void* old, size_t size) {
  return ++calls, __libc_realloc(old, size);
}
REPLACED void* memalign(size_t alignment, size_t size) {
  return ++calls, __libc_memalign(alignment, size);
}
REPLACED void* aligned_alloc(size_t alignment, size_t size) {
  return ++calls, __libc_memalign(alignment, size);
}
REPLACED int posix_memalign(void** made, size_t alignment, size_t size) {
  ++calls;
  *made = __libc_memalign(alignment, size);
  return *made == nullptr ? ENOMEM : 0;
}
}

int main(int count, char** arguments) {
  std::printf("[");
  for (int i = 1; i < count; ++i) {
    phonograd::EngineOptions options;
    options.threads = 3;
    const long before = calls;
    phonograd::Engine engine(arguments[i], "", options);
    const int64_t tokens = engine.manifest().bptt * engine.manifest().minibatch, V = engine.manifest().vocabulary;
    std::vector<int64_t> ids(static_cast<size_t>(tokens));
    float losses = 0;
    long first = 0;
    for (int64_t step = 0; step < 5; ++step) {
      for (int64_t n = 0; n < tokens; ++n) ids[static_cast<size_t>(n)] = (step * 7 + n * (step + 1)) % V;
      losses += engine.step(ids.data(), ids.data(), 0.1f);
      if (step == 0) first = calls;
    }
    const long later = calls - first;
    std::printf("%s{\"before\": %ld, \"later\": %ld, \"losses\": %f}", i == 1 ? "" : ", ", first - before, later,
                static_cast<double>(losses));
  }
  std::printf("]\n");
}
