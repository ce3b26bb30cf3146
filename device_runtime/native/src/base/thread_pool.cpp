#include "base/thread_pool.h"

#include <sched.h>
#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#else
#include "base/word_sleep.h"
#endif

#include <climits>

#include "base/cpu_cores.h"
#include "base/error.h"
#include "base/files.h"
#include "base/spins.h"

namespace phonograd {

namespace {

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// After spins these give the awaited thread this core. After them the waiter sleeps: on a busy machine the system moves
// the awaited thread to a core only once that core is idle.
constexpr int kYields = 50;

#if defined(__linux__)

// On a std::atomic<uint32_t>, which is the 32-bit integer that the kernel wants.
static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t) && std::atomic<uint32_t>::is_always_lock_free);

void futex(std::atomic<uint32_t>& word, int operation, uint32_t value) {
  syscall(SYS_futex, &word, operation, value, nullptr, nullptr, 0);
}

// Sleeps as long as the word has this value, which the kernel compares once more before the thread sleeps.
void sleep_while(std::atomic<uint32_t>& word, uint32_t value) {
  while (word.load() == value) futex(word, FUTEX_WAIT_PRIVATE, value);
}

void wake_sleepers(std::atomic<uint32_t>& word) {
  futex(word, FUTEX_WAKE_PRIVATE, INT_MAX);
}

// The CPUs to pin threads to, the fastest first.
std::vector<int> pinnable() {
  std::vector<int> cpus;
  for (const Core& core : fastest_first(allowed_cores())) cpus.push_back(core.number);
  return cpus;
}

void pin_to(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(cpu), &set);
  sched_setaffinity(0, sizeof set, &set);  // of the calling thread; on failure it stays unpinned
}

// Pins the calling thread to one CPU and restores its CPUs in the destructor: threads that it starts later, and another
// engine on it, must see all of them.
class PinnedHere {
 public:
  explicit PinnedHere(const std::vector<int>& cpus) {
    pinned_ = !cpus.empty() && sched_getaffinity(0, sizeof before_, &before_) == 0;
    if (pinned_) pin_to(cpus[0]);
  }
  ~PinnedHere() {
    if (pinned_) sched_setaffinity(0, sizeof before_, &before_);
  }
  PinnedHere(const PinnedHere&) = delete;
  PinnedHere& operator=(const PinnedHere&) = delete;

 private:
  bool pinned_ = false;
  cpu_set_t before_;
};

#else

std::vector<int> pinnable() {
  throw Error(Status::unsupported, "macOS pins no thread to a core; run without `pin_threads`");
}

void pin_to(int) {}

struct PinnedHere {
  explicit PinnedHere(const std::vector<int>&) {}
};

#endif

}  // namespace

ThreadPool::ThreadPool(int threads, bool pin) : threads_(threads), shares_(threads) {
  if (pin) cpus_ = pinnable();
  workers_.resize(static_cast<size_t>(threads - 1));
  for (int thread = 1; thread < threads; ++thread) {
    Worker& worker = workers_[static_cast<size_t>(thread - 1)];
    worker.pool = this;
    worker.thread = thread;
    if (const int reason = pthread_create(&worker.handle, nullptr, start, &worker)) {
      workers_.resize(static_cast<size_t>(thread - 1));
      stop();
      throw Error(Status::out_of_memory, "thread " + std::to_string(thread) + " of " + std::to_string(threads) +
                                             ": cannot be started: " + reason_of(reason) +
                                             "; use fewer `threads`, or close other apps");
    }
  }
}

ThreadPool::~ThreadPool() {
  stop();
}

void ThreadPool::stop() {
  ending_.store(true, std::memory_order_release);
  generation_.fetch_add(1);
  wake(generation_);
  for (Worker& worker : workers_) pthread_join(worker.handle, nullptr);
}

void ThreadPool::wait_while(std::atomic<uint32_t>& word, uint32_t value) {
  int spins = kFewSpins;  // most waits are shorter, and need not ask the kernel
  for (int look = 0; look < spins + kYields; ++look) {
    if (word.load(std::memory_order_acquire) != value) return;
    if (look == kFewSpins) spins = spins_of(threads_, static_cast<int>(cpus_.size()));
    look < spins ? pause_briefly() : static_cast<void>(sched_yield());
  }
  // Sequentially consistent, as in wake(): either the waiter sees the new value, or wake() sees the waiter.
  asleep_.fetch_add(1);
  sleep_while(word, value);
  asleep_.fetch_sub(1);
}

void ThreadPool::wake(std::atomic<uint32_t>& word) {
  if (asleep_.load() > 0) wake_sleepers(word);
}

void* ThreadPool::start(void* argument) {
  auto* worker = static_cast<Worker*>(argument);
  worker->pool->work(worker->thread);
  return nullptr;
}

void ThreadPool::work(int thread) {
  if (!cpus_.empty()) pin_to(cpus_[static_cast<size_t>(thread) % cpus_.size()]);
  for (uint32_t seen = 0;; ++seen) {
    wait_while(generation_, seen);
    if (ending_.load(std::memory_order_acquire)) return;
    task_(context_, thread);
    if (running_.fetch_sub(1) == 1) wake(running_);
  }
}

void ThreadPool::run_raw(RawTask task, void* context) {
  task_ = task;
  context_ = context;
  running_.store(static_cast<uint32_t>(threads_ - 1), std::memory_order_relaxed);
  generation_.fetch_add(1);
  wake(generation_);
  const PinnedHere here(cpus_);
  task(context, 0);
  for (uint32_t left; (left = running_.load(std::memory_order_acquire)) != 0;) wait_while(running_, left);
}

void ThreadPool::barrier() {
  const uint32_t passed = barriers_passed_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
    arrived_.store(0, std::memory_order_relaxed);
    shares_.reset();  // all have come, so nobody is taking
    barriers_passed_.fetch_add(1);
    wake(barriers_passed_);
    return;
  }
  wait_while(barriers_passed_, passed);
}

}  // namespace phonograd
