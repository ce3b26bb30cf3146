// Two threads that take turns, each asleep until the other changes the word: prints how often they did. For
// test_macos.py, as macOS's threads sleep.
#include <cstdio>
#include <thread>

#include "base/word_sleep.h"

int main() {
  constexpr uint32_t kTurns = 20000;
  std::atomic<uint32_t> turn{0}, other{0};
  const auto take = [&](uint32_t first) {
    for (uint32_t mine = first; mine < kTurns; mine += 2) {
      for (uint32_t now; (now = turn.load()) != mine;) phonograd::sleep_while(turn, now);
      turn.fetch_add(1);
      phonograd::wake_sleepers(turn);
    }
  };
  // A word of its own, which nobody changes while the two work: their wakes must not end its sleep.
  std::thread third([&] { phonograd::sleep_while(other, 0); });
  std::thread one(take, 0), two(take, 1);
  one.join();
  two.join();
  const uint32_t turns = turn.load();
  other.store(1);
  phonograd::wake_sleepers(other);
  third.join();
  std::printf("%u\n", turns);
}
