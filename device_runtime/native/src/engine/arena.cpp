#include "engine/arena.h"

#include <algorithm>
#include <numeric>

namespace phonograd {

namespace {

constexpr size_t kAlignment = 64;

size_t align_up(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

bool meet(const Lifetime& a, const Lifetime& b) {
  return a.first <= b.last && b.first <= a.last;
}

}  // namespace

size_t lay_out(std::vector<Lifetime>& lifetimes) {
  std::vector<size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return lifetimes[a].bytes > lifetimes[b].bytes; });
  std::vector<size_t> placed;  // by offset
  size_t total = 0;
  for (size_t at : order) {
    Lifetime& life = lifetimes[at];
    size_t offset = 0;
    for (size_t other : placed) {
      const Lifetime& there = lifetimes[other];
      if (!meet(life, there)) continue;
      if (offset + life.bytes <= there.offset) break;
      offset = std::max(offset, there.offset + align_up(there.bytes));
    }
    life.offset = offset;
    total = std::max(total, offset + align_up(life.bytes));
    const auto before = [&](size_t a, size_t b) { return lifetimes[a].offset < lifetimes[b].offset; };
    placed.insert(std::upper_bound(placed.begin(), placed.end(), at, before), at);
  }
  return total;
}

}  // namespace phonograd
