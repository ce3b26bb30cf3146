#include "engine/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "base/error.h"

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

Memory::Memory(size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw Error(Status::out_of_memory,
                "out of memory: " + std::to_string(bytes) + " bytes needed; close other apps or use a smaller model");
  }
  data_ = static_cast<unsigned char*>(memory);
}

Memory::~Memory() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace phonograd
