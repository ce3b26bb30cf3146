// The tensor file reader on any bytes: tensors that lie within the file, or Error(weights).
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "formats/tensor_file.h"
#include "memory_file.h"

using namespace phonograd;

static void expect(bool good) {
  if (!good) std::abort();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int memory = memory_file();
  expect(memory >= 0 && ftruncate(memory, 0) == 0);
  expect(size == 0 || pwrite(memory, data, size, 0) == static_cast<ssize_t>(size));
  const std::string path = "/proc/self/fd/" + std::to_string(memory);
  try {
    const TensorFile file(path);
    expect(file.file_bytes() == size);
    size_t end = 0, bytes = 0;
    for (const TensorSpec& spec : file.specs()) {
      expect(end == 0 || spec.offset == end);
      end = spec.offset + spec.bytes;
      bytes += spec.bytes;
      expect(end <= size && spec.elements() <= spec.bytes && file.find(spec.name) == &spec);
    }
    expect(bytes <= size && (end == 0 || end == size));
    expect(file.map_copy_on_write().data() != nullptr);
    file.require_unchanged();
  } catch (const Error& error) {
    expect(error.status() == Status::weights);
    expect(std::string(error.what()).rfind(path + ": ", 0) == 0);
  }
  return 0;
}
