// Runs a fuzz target without libFuzzer, so that any compiler builds it:
//   fuzz_NAME LAST SEED COUNT INPUT...   every input as it is, then changed COUNT times; the same in every run
// LAST is a file that holds the input that is running, or ran last: what to repeat (COUNT 0) after a crash.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/splitmix64.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
// A target that knows its input better changes it by itself.
extern "C" __attribute__((weak)) size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed);
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);

namespace {

using Bytes = std::vector<uint8_t>;
constexpr size_t kMostBytes = 16384, kMostChanges = 6, kMostInserted = 64;

phonograd::SplitMix64 numbers(0);

size_t random_below(size_t end) {
  return static_cast<size_t>(numbers.below(end));
}

uint8_t random_byte() {
  return static_cast<uint8_t>(random_below(256));
}

void change(Bytes& bytes) {
  const auto at = bytes.begin() + static_cast<int64_t>(random_below(bytes.size() + 1));
  const auto left = static_cast<size_t>(bytes.end() - at);
  const size_t kind = random_below(4);
  if (left == 0 || kind == 0) {
    Bytes inserted(1 + random_below(kMostInserted));
    for (uint8_t& byte : inserted) byte = random_byte();
    bytes.insert(at, inserted.begin(), inserted.end());
  } else if (kind == 1) {
    bytes.erase(at, at + 1 + static_cast<int64_t>(random_below(left)) / 8);
  } else {
    *at = kind == 2 ? random_byte() : static_cast<uint8_t>(*at ^ 1u << random_below(8));
  }
}

void run(const char* last, const Bytes& bytes) {
  std::ofstream(last, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

}  // namespace

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most) {
  Bytes bytes(data, data + size);
  for (size_t changes = 1 + random_below(kMostChanges); changes > 0; --changes) change(bytes);
  if (bytes.size() > most) bytes.resize(most);
  for (size_t i = 0; i < bytes.size(); ++i) data[i] = bytes[i];
  return bytes.size();
}

int main(int count, char** arguments) {
  if (count < 5) return 2;
  const long long changed = std::atoll(arguments[3]);
  for (int argument = 4; argument < count; ++argument) {
    numbers = phonograd::SplitMix64(static_cast<uint64_t>(std::atoll(arguments[2])));
    std::ifstream file(arguments[argument], std::ios::binary);
    if (!file) return 2;
    const Bytes seed{std::istreambuf_iterator<char>(file), {}};
    run(arguments[1], seed);
    Bytes bytes = seed;
    for (long long i = 0; i < changed; ++i) {
      if (i % 8 == 0) bytes = seed;  // up to eight changes one after another
      const size_t size = bytes.size();
      bytes.resize(kMostBytes);
      const auto mutate = LLVMFuzzerCustomMutator;
      bytes.resize(mutate != nullptr ? mutate(bytes.data(), size, kMostBytes, 0)
                                     : LLVMFuzzerMutate(bytes.data(), size, kMostBytes));
      run(arguments[1], bytes);
    }
  }
  return 0;
}
