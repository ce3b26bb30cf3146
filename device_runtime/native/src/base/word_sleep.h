// Sleeping until a word changes, where the system has no futex. All words share a lock: threads seldom sleep.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace phonograd {

inline pthread_mutex_t word_lock = PTHREAD_MUTEX_INITIALIZER;
inline pthread_cond_t word_changed = PTHREAD_COND_INITIALIZER;

// Sleeps as long as the word has this value. Thread-safe.
inline void sleep_while(std::atomic<uint32_t>& word, uint32_t value) {
  pthread_mutex_lock(&word_lock);
  while (word.load() == value) pthread_cond_wait(&word_changed, &word_lock);
  pthread_mutex_unlock(&word_lock);
}

// After a change of the word. By the lock nobody is between its look at the word and its sleep.
inline void wake_sleepers(std::atomic<uint32_t>&) {
  pthread_mutex_lock(&word_lock);
  pthread_cond_broadcast(&word_changed);
  pthread_mutex_unlock(&word_lock);
}

}  // namespace phonograd
