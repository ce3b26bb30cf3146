// How threads of unequal speed share work. For test_shares.py, and by hand for its times.
//
//   shares_tool model ITEMS SPEED...        each thread's items and the time the last one ends, in a model without
//   noise
//   shares_tool parts H N PANEL SPEED...    the share of what all cores can together at which they work, in a model of
//   the output layer's second sweep without noise
//   shares_tool real ITEMS REPEATS SLOW...  seconds of REPEATS shared phases, thread i doing its work SLOW_i
//   times over
//   shares_tool spins THREADS               the most spins of so many threads on the CPUs that it may use
//   shares_tool waiting THREADS             prints a line for each way to wait in which all waiting threads slept
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/spins.h"
#include "base/thread_pool.h"
#include "operators/output_parts.h"

// Six words that threads wait for or write, each on a cache line of its own, behind two lines that never change.
static_assert(alignof(phonograd::ThreadPool) == 64 && sizeof(phonograd::ThreadPool) == (2 + 6) * 64);

namespace {

using phonograd::ThreadPool;

// Whoever is free first takes next, from the shares' ends if `back`; a range takes its items by the thread's speed.
void model(int64_t items, const std::vector<double>& speeds, bool back) {
  const size_t threads = speeds.size();
  phonograd::Shares shares(static_cast<int>(threads));
  std::vector<double> free_at(threads, 0);
  std::vector<int64_t> done(threads, 0);
  std::vector<int> taken(static_cast<size_t>(items), 0);
  std::vector<bool> working(threads, true);
  double last = 0;
  while (true) {
    size_t next = threads;
    for (size_t i = 0; i < threads; ++i) {
      if (working[i] && (next == threads || free_at[i] < free_at[next])) next = i;
    }
    if (next == threads) break;
    int64_t first = 0, end = 0;
    if (!shares.take(static_cast<int>(next), items, back, first, end)) {
      working[next] = false;
      continue;
    }
    for (int64_t item = first; item < end; ++item) ++taken[static_cast<size_t>(item)];
    done[next] += end - first;
    free_at[next] += static_cast<double>(end - first) / speeds[next];
    if (free_at[next] > last) last = free_at[next];
  }
  for (const int times : taken) {
    if (times != 1) std::exit(1);
  }
  for (const int64_t of_thread : done) std::printf("%lld ", static_cast<long long>(of_thread));
  std::printf("%.17g\n", last);
}

// Whoever is free first takes next; a column of the hidden states' gradient takes a unit of time at speed 1.
void parts(int64_t H, int64_t N, int64_t panel, const std::vector<double>& speeds) {
  const phonograd::OutputParts parts(10 * phonograd::OutputParts::kParts, H, panel, static_cast<int>(speeds.size()));
  std::vector<double> free_at(speeds.size(), 0);
  std::vector<int64_t> columns(phonograd::OutputParts::kParts, 0), grams = columns;
  double work = 0;
  for (int64_t number = 0; number < parts.pieces(); ++number) {
    const auto piece = parts.piece(number);
    const double time = static_cast<double>(piece.end - piece.first) + (piece.gram ? static_cast<double>(N) / 2 : 0);
    const auto next = std::min_element(free_at.begin(), free_at.end());
    *next += time / speeds[static_cast<size_t>(next - free_at.begin())];
    work += time;
    columns[static_cast<size_t>(piece.part)] += piece.end - piece.first;
    grams[static_cast<size_t>(piece.part)] += piece.gram;
  }
  for (size_t part = 0; part < columns.size(); ++part) {
    if (columns[part] != H || grams[part] != 1) std::exit(1);
  }
  double together = 0;
  for (const double speed : speeds) together += speed;
  std::printf("%.17g\n", work / together / *std::max_element(free_at.begin(), free_at.end()));
}

void real(int64_t items, int64_t repeats, const std::vector<double>& slow) {
  ThreadPool pool(static_cast<int>(slow.size()), true);
  std::vector<double> sums(slow.size() * 16, 1);
  const auto began = std::chrono::steady_clock::now();
  pool.run([&](int thread) {
    double& sum = sums[static_cast<size_t>(thread) * 16];
    const auto times = static_cast<int64_t>(slow[static_cast<size_t>(thread)]);
    for (int64_t repeat = 0; repeat < repeats; ++repeat) {
      pool.share(thread, items, false, [&](int64_t first, int64_t end) {
        for (int64_t i = 0; i < (end - first) * times * 500; ++i) sum = sum * 0.999 + 1e-3;
      });
    }
  });
  std::printf("%.6f\n", std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
}

// Whether the kernel has the thread sleep.
bool sleeps(long thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  const std::string line{std::istreambuf_iterator<char>(file), {}};
  return line.compare(line.rfind(')') + 1, 3, " S ") == 0;
}

void until_asleep(const std::vector<long>& threads, const char* where) {
  while (!std::all_of(threads.begin(), threads.end(), sleeps)) usleep(1000);
  std::puts(where);
}

void waiting(int threads) {
  ThreadPool pool(threads, false);
  std::vector<long> numbers(static_cast<size_t>(threads));
  pool.run([&](int thread) { numbers[static_cast<size_t>(thread)] = syscall(SYS_gettid); });
  const std::vector<long> workers(numbers.begin() + 1, numbers.end()), caller(numbers.begin(), numbers.begin() + 1);
  until_asleep(workers, "for a task");
  pool.run([&](int thread) {
    if (thread == 0) until_asleep(workers, "at a barrier");
    pool.barrier();
  });
  pool.run([&](int thread) {
    if (thread == 1) until_asleep(caller, "for the workers");
  });
}

}  // namespace

int main(int count, char** arguments) {
  if (count == 3 && std::strcmp(arguments[1], "waiting") == 0) {
    waiting(std::atoi(arguments[2]));
    return 0;
  }
  const std::string what = arguments[1];
  if (what == "spins") {
    std::printf("%d\n", phonograd::spins_of(std::atoi(arguments[2]), 0));
    return 0;
  }
  std::vector<double> numbers;  // the speeds
  for (int i = what == "model" || what == "back" ? 3 : what == "parts" ? 5 : 4; i < count; ++i)
    numbers.push_back(std::atof(arguments[i]));
  if (what == "model" || what == "back") {
    model(std::atoll(arguments[2]), numbers, what == "back");
  } else if (what == "parts") {
    parts(std::atoll(arguments[2]), std::atoll(arguments[3]), std::atoll(arguments[4]), numbers);
  } else {
    real(std::atoll(arguments[2]), std::atoll(arguments[3]), numbers);
  }
  return 0;
}
