// Counts what a training step allocates: for each artifacts folder, calls of malloc and its kin until the engine has
// taken its first step, and during four more. One JSON array on stdout.
#include <cstdint>
#include <cstdio>
#include <vector>

#include "engine/engine.h"

// Of malloc and its kin: failing_calls.cpp, which is linked with it and fails none.
extern "C" long calls_made();

int main(int count, char** arguments) {
  std::printf("[");
  for (int i = 1; i < count; ++i) {
    phonograd::EngineOptions options;
    options.threads = 3;
    const long before = calls_made();
    phonograd::Engine engine(arguments[i], "", options);
    const int64_t tokens = engine.manifest().bptt * engine.manifest().minibatch, V = engine.manifest().vocabulary;
    std::vector<int64_t> ids(static_cast<size_t>(tokens));
    float losses = 0;
    long first = 0;
    for (int64_t step = 0; step < 5; ++step) {
      for (int64_t n = 0; n < tokens; ++n) ids[static_cast<size_t>(n)] = (step * 7 + n * (step + 1)) % V;
      losses += engine.step(ids.data(), ids.data(), 0.1f);
      if (step == 0) first = calls_made();
    }
    const long later = calls_made() - first;
    std::printf("%s{\"before\": %ld, \"later\": %ld, \"losses\": %f}", i == 1 ? "" : ", ", first - before, later,
                static_cast<double>(losses));
  }
  std::printf("]\n");
}
