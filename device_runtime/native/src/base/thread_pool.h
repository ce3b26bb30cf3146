// Threads that live as long as the engine and work on one task at a time.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/shares.h"

namespace phonograd {

// `run` is called by one thread at a time, the caller being thread 0 of the task. No call but the constructor
// allocates.
class ThreadPool {
 public:
  // threads: at least 1, the caller's included. pin: thread i runs on the i-th fastest of the CPUs that the caller may
  // use now. The thread that calls run() is pinned too, until run() returns. Throws Error: out_of_memory if a thread
  // can't be started, unsupported if the kernel does not report which CPUs may be used.
  ThreadPool(int threads, bool pin);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // task(thread) on every thread, thread in [0, threads()); returns when all are done. The task must not throw.
  template <typename Task>
  void run(Task&& task) {
    run_raw([](void* context, int thread) { (*static_cast<std::remove_reference_t<Task>*>(context))(thread); }, &task);
  }

  // task(item, thread) for every item in [0, items), whichever thread is free taking the next: for work whose results
  // do not depend on who does it.
  template <typename Task>
  void for_each(int64_t items, Task&& task) {
    next_.store(0, std::memory_order_relaxed);
    run([&](int thread) {
      for (int64_t item; (item = next_.fetch_add(1, std::memory_order_relaxed)) < items;) task(item, thread);
    });
  }

  // Inside a task: wait until all its threads are here. All threads must call it equally often.
  void barrier();

  // Inside a task, called by all its threads with the same `items`: work(first, end) for ranges that are [0, items)
  // together, and a barrier. A thread's own share is the same in every call; who is done with it helps the others.
  // back: shares are taken from their ends, where the call before it ended, so that a part of them is still in the
  // cache.
  template <typename Work>
  void share(int thread, int64_t items, bool back, Work&& work) {
    for (int64_t first = 0, end = 0; shares_.take(thread, items, back, first, end);) work(first, end);
    barrier();
  }

 private:
  using RawTask = void (*)(void* context, int thread);
  void run_raw(RawTask task, void* context);
  void work(int thread);
  void stop();
  static void* start(void* argument);
  // Wait until the word has another value: spin at first, then sleep until wake(word).
  void wait_while(std::atomic<uint32_t>& word, uint32_t value);
  void wake(std::atomic<uint32_t>& word);

  struct Worker {
    ThreadPool* pool;
    int thread;
    pthread_t handle;
  };

  int threads_;
  std::vector<int> cpus_;  // the fastest first; empty unless pinned
  std::vector<Worker> workers_;
  RawTask task_ = nullptr;
  void* context_ = nullptr;
  Shares shares_;
  std::atomic<bool> ending_{false};
  // Cache lines of their own: a thread that waits for one word must not slow those that write another.
  alignas(64) std::atomic<uint32_t> generation_{0};  // of the task; workers wait for it to change
  alignas(64) std::atomic<uint32_t> running_{0};     // workers that have not finished the task
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<uint32_t> barriers_passed_{0};
  alignas(64) std::atomic<int64_t> next_{0};
  alignas(64) std::atomic<int> asleep_{0};  // threads in wait_while that no longer spin
};

}  // namespace phonograd
