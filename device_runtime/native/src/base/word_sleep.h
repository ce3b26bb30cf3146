// Sleeping until a word changes, where the system has no futex. All words share a lock: threads seldom sleep.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace phonograd {

inline std::mutex word_lock;
inline std::condition_variable word_changed;

// As long as the word has this value. Thread-safe.
inline void sleep_while(std::atomic<uint32_t>& word, uint32_t value) {
  std::unique_lock<std::mutex> lock(word_lock);
  word_changed.wait(lock, [&] { return word.load() != value; });
}

// After a change of the word. The lock is taken, so that nobody is between its look at the word and its sleep.
inline void wake_sleepers(std::atomic<uint32_t>&) {
  std::unique_lock<std::mutex>(word_lock).unlock();
  word_changed.notify_all();
}

}  // namespace phonograd
