// libFuzzer target: any bytes as the document of a personal words' file, its checksum made to fit, are refused with
// Error(state), or give a store that predicts probabilities, learns, deletes, and reads what it saved as the same.
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "base/crc32.h"
#include "base/error.h"
#include "base/splitmix64.h"
#include "personal/words.h"

using namespace phonograd;

static void expect(bool good) {
  if (!good) std::abort();
}

static void expect_probabilities(const PersonalWords& words, const WordsBefore& before) {
  std::vector<double> next;
  const int seen = words.predict(before, next);
  expect(seen >= -1 && seen <= kPersonalOrders && next.size() == words.words().size());
  expect(words.weight(seen) >= 0 && words.weight(seen) <= 1);
  double sum = 0;
  for (const double probability : next) {
    expect(probability >= 0);
    sum += probability;
  }
  expect(seen < 0 ? sum == 0 : std::fabs(sum - 1) < 1e-6);
}

static void use(const std::string& path) {
  PersonalWords words(path);
  std::vector<uint64_t> keys{kMessageEndKey};
  for (size_t word = 1; word < words.words().size() && word < 8; ++word) {
    keys.push_back(word_key(words.words()[word].spelling));
  }
  for (const uint64_t last : keys) {
    for (const uint64_t earlier : keys) expect_probabilities(words, {last, earlier});
  }
  const std::string known = words.words().back().spelling;
  for (const std::string& word : {known, std::string("new"), std::string("4711")}) {
    for (int times = 0; times < 2; ++times) {
      words.learn({keys.back(), kMessageEndKey}, word, times == 0 ? "" : word, word == "4711");
      words.learn_message_end({word_key(word), keys.back()});
      words.fit(times, 0.25, 0.5);
      expect_probabilities(words, {word_key(word), keys.back()});
    }
  }
  words.save();
  expect(PersonalWords(path).list() == words.list());
  words.erase(known);
  expect(known.empty() || words.index(known) == -1);
  for (const uint64_t last : keys) expect_probabilities(words, {last, keys.back()});
  words.save();
  expect(PersonalWords(path).list() == words.list());
}

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);

// Mostly other numbers in the same places, so that more than the parser of JSON is reached.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned) {
  static SplitMix64 numbers(1);
  if (size == 0 || numbers.below(8) == 0) return LLVMFuzzerMutate(data, size, most);
  for (int changes = 0; changes < 2; ++changes) {
    uint8_t& byte = data[numbers.below(size)];
    if (byte >= '0' && byte <= '9') byte = static_cast<uint8_t>('1' + numbers.below(4));
  }
  return size;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const char* folder = std::getenv("TMPDIR");
  static const std::string path =
      std::string(folder == nullptr ? "/tmp" : folder) + "/personal." + std::to_string(getpid());
  char line[32];
  std::snprintf(line, sizeof line, "phonograd-personal-1 %08x\n", static_cast<unsigned>(crc32(0, data, size)));
  const std::string file = line + std::string(reinterpret_cast<const char*>(data), size);
  std::ofstream(path, std::ios::binary) << file;
  try {
    use(path);
  } catch (const Error& error) {
    expect(error.status() == Status::state && std::string(error.what()).rfind(path, 0) == 0);
  }
  unlink(path.c_str());
  return 0;
}
