#include "base/thread_pool.h"

#include <sched.h>

#include "base/error.h"

namespace phonograd {

namespace {

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// Spin for a few microseconds (a barrier of equal shares is met in less), then give the core to whoever needs it: on a
// shared machine the awaited thread may be waiting for this very core.
template <typename Condition>
void wait_until(Condition condition) {
  constexpr int kSpins = 4000;
  for (int spin = 0; !condition(); ++spin) {
    if (spin < kSpins) {
      pause_briefly();
    } else {
      sched_yield();
    }
  }
}

std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<unsigned>(cpu), &set)) cpus.push_back(cpu);
  }
  return cpus;
}

void pin_to(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(cpu), &set);
  sched_setaffinity(0, sizeof set, &set);  // of the calling thread; a refusal leaves it where it is
}

}  // namespace

ThreadPool::ThreadPool(int threads, bool pin) : threads_(threads) {
  if (pin) cpus_ = allowed_cpus();
  pthread_mutex_init(&sleep_mutex_, nullptr);
  pthread_cond_init(&wake_, nullptr);
  workers_.resize(static_cast<size_t>(threads - 1));
  if (!cpus_.empty()) pin_to(cpus_[0]);
  for (int thread = 1; thread < threads; ++thread) {
    Worker& worker = workers_[static_cast<size_t>(thread - 1)];
    worker.pool = this;
    worker.thread = thread;
    if (pthread_create(&worker.handle, nullptr, start, &worker) != 0) {
      workers_.resize(static_cast<size_t>(thread - 1));
      stop();
      throw Error(Status::bug, "thread " + std::to_string(thread) + " of " + std::to_string(threads) +
                                   ": the system refuses another thread; give fewer --threads");
    }
  }
}

ThreadPool::~ThreadPool() {
  stop();
}

void ThreadPool::stop() {
  ending_.store(true, std::memory_order_release);
  pthread_mutex_lock(&sleep_mutex_);
  generation_.fetch_add(1, std::memory_order_release);
  pthread_cond_broadcast(&wake_);
  pthread_mutex_unlock(&sleep_mutex_);
  for (Worker& worker : workers_) pthread_join(worker.handle, nullptr);
  pthread_cond_destroy(&wake_);
  pthread_mutex_destroy(&sleep_mutex_);
}

void* ThreadPool::start(void* argument) {
  auto* worker = static_cast<Worker*>(argument);
  worker->pool->work(worker->thread);
  return nullptr;
}

void ThreadPool::work(int thread) {
  if (!cpus_.empty()) pin_to(cpus_[static_cast<size_t>(thread) % cpus_.size()]);
  uint32_t seen = 0;
  for (;;) {
    // Tasks follow each other closely within a step, so wait awake for a while before sleeping.
    constexpr int kSpins = 20000;
    for (int spin = 0; spin < kSpins && generation_.load(std::memory_order_acquire) == seen; ++spin) pause_briefly();
    if (generation_.load(std::memory_order_acquire) == seen) {
      pthread_mutex_lock(&sleep_mutex_);
      asleep_.fetch_add(1);
      while (generation_.load() == seen) pthread_cond_wait(&wake_, &sleep_mutex_);
      asleep_.fetch_sub(1);
      pthread_mutex_unlock(&sleep_mutex_);
    }
    ++seen;
    if (ending_.load(std::memory_order_acquire)) return;
    task_(context_, thread);
    running_.fetch_sub(1, std::memory_order_release);
  }
}

void ThreadPool::run_raw(RawTask task, void* context) {
  task_ = task;
  context_ = context;
  running_.store(threads_ - 1, std::memory_order_relaxed);
  // Sequentially consistent, as `asleep_` is: a worker either sees the new generation or is seen to sleep.
  generation_.fetch_add(1);
  if (asleep_.load() > 0) {
    pthread_mutex_lock(&sleep_mutex_);
    pthread_cond_broadcast(&wake_);
    pthread_mutex_unlock(&sleep_mutex_);
  }
  task(context, 0);
  wait_until([&] { return running_.load(std::memory_order_acquire) == 0; });
}

void ThreadPool::barrier() {
  const uint32_t passed = barriers_passed_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
    arrived_.store(0, std::memory_order_relaxed);
    barriers_passed_.fetch_add(1, std::memory_order_release);
    return;
  }
  wait_until([&] { return barriers_passed_.load(std::memory_order_acquire) != passed; });
}

}  // namespace phonograd
