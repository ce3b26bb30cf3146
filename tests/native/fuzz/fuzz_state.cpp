// The reader of training states on any bytes, its checksum made to fit: a state of this job and model that changes just
// what the file holds, or Error(state) and the engine's memory as it was.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/crc32.h"
#include "memory_file.h"
#include "training/state_file.h"

using namespace phonograd;

static void expect(bool good) {
  if (!good) std::abort();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int memory = memory_file();
  std::vector<uint8_t> bytes(data, data + size);
  if (size >= 4) {
    const uint32_t sum = crc32(0, bytes.data(), size - 4);
    std::memcpy(&bytes[size - 4], &sum, sizeof sum);
  }
  expect(memory >= 0 && ftruncate(memory, 0) == 0);
  expect(size == 0 || pwrite(memory, bytes.data(), size, 0) == static_cast<ssize_t>(size));
  const std::string path = "/proc/self/fd/" + std::to_string(memory);

  std::vector<float> embedding(6 * 3), weights(2 * 3), bias(4), hidden(2 * 3);
  const std::vector<Parameter> parameters = {{"embedding.weight", {6, 3}, embedding.data()},
                                             {"decoder.weight", {2, 3}, weights.data()},
                                             {"decoder.bias", {4}, bias.data()}};
  const std::vector<RecurrentState> recurrent = {{"h0", {1, 2, 3}, hidden.data()}};
  const Job job = {{"learning_rate", "0.5"}, {"seed", "1"}};
  for (const char* rows_of : {"embedding.weight", ""}) {
    try {
      const Progress progress = read_state_file(path, job, {parameters, recurrent, rows_of});
      expect(progress.losses.size() == progress.step_seconds.size() && progress.losses.size() * 16 <= size);
      return 0;
    } catch (const Error& error) {
      expect(error.status() == Status::state);
      expect(std::string(error.what()).rfind(path + ": ", 0) == 0);
      for (const std::vector<float>* values : {&embedding, &weights, &bias, &hidden}) {
        for (const float value : *values) expect(value == 0);
      }
    }
  }
  return 0;
}
