// Work that threads of unequal speed share: each begins with an even share of its own, so that what it reads again and
// again stays in its core's cache, and then helps the others.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace phonograd {

// Items [0, items), taken in ranges. Thread-safe but for its constructor and reset(), which want no take() under way.
class Shares {
 public:
  explicit Shares(int threads) : taken_(static_cast<size_t>(threads)) {}

  // All items are there to be taken again.
  void reset();

  // The next range for `thread`: a part of what is left of its own share, else of another's. False: nothing is left.
  // back: shares are taken from their ends. It and `items` are the same in all calls between two resets.
  bool take(int thread, int64_t items, bool back, int64_t& first, int64_t& end);

 private:
  // A core's cache line of its own: others look at it only when they have nothing left to do.
  struct alignas(64) Taken {
    std::atomic<int64_t> items{0};
  };
  static_assert(sizeof(Taken) == 64);
  std::vector<Taken> taken_;  // of each thread's share
};

}  // namespace phonograd
