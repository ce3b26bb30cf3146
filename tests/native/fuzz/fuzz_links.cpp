// A phone that pulls any bytes as a file of links: the model that they lead to, or an error and the old model as it
// was.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/crc32.h"
#include "base/files.h"
#include "formats/sha256.h"
#include "formats/tensor_file.h"
#include "memory_file.h"
#include "update/pull.h"
#include "update/update_reader.h"

using namespace phonograd;

namespace {

void expect(bool good) {
  if (!good) std::abort();
}

// What the seeds lead from: rows shorter than a block, blocks of every kind, a frozen tensor. All weights are 1.
std::string base_model() {
  std::vector<TensorSpec> specs = {
      {"table", "F32", {40, 5}}, {"bias", "F32", {3}}, {"vector", "F32", {4160}}, {"frozen", "F32", {2}}};
  std::string bytes = tensor_file_header(specs, {{"frozen", "frozen"}});
  const std::vector<float> ones((specs.back().offset + specs.back().bytes - bytes.size()) / sizeof(float), 1.0f);
  return bytes.append(reinterpret_cast<const char*>(ones.data()), ones.size() * sizeof(float));
}

// Make the checksums right, so that what changed is looked at.
void repair(const std::string& path, int memory) {
  try {
    size_t start = 0, size = 0;
    do {
      const TensorFile file(path, Status::update, start);
      if (file.specs().empty() || file.specs().back().bytes != sizeof(uint32_t)) return;
      const size_t at = file.specs().back().offset;
      const uint32_t sum = crc32(0, file.data(file.specs().front()) - file.specs().front().offset + start, at - start);
      expect(pwrite(memory, &sum, sizeof sum, static_cast<off_t>(at)) == sizeof sum);
      start = file.end(), size = file.file_bytes();
    } while (start < size);
  } catch (const Error&) {
  }
}

// The model to which the file claims to lead; another if it is no file of links.
std::string asked(const std::string& path) {
  std::string sha256;
  try {
    for_each_link(path, [&](const UpdateReader& link) { sha256 = link.result_sha256(); });
  } catch (const Error&) {
  }
  return is_sha256(sha256) ? sha256 : sha256_hex("", 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int memory = memory_file();
  static const std::string folder = std::getenv("TMPDIR") == nullptr ? "/tmp" : std::getenv("TMPDIR");
  static const std::string base = folder + "/base", out = folder + "/out", model = base_model();
  static bool ready = false;
  if (!ready) {
    write_file(base, model.data(), model.size());
    write_file(out, "old", 3);
  }
  ready = true;
  expect(memory >= 0 && ftruncate(memory, 0) == 0);
  expect(size == 0 || pwrite(memory, data, size, 0) == static_cast<ssize_t>(size));
  const std::string fetched = "/proc/self/fd/" + std::to_string(memory);
  repair(fetched, memory);
  const std::string sha256 = asked(fetched);
  try {
    const std::optional<Pulled> pulled = pull({fetched, base, sha256, out}, [] { return false; });
    expect(pulled && pulled->links > 0 && sha256_of_file(out, Status::bug) == sha256);
    write_file(out, "old", 3);
  } catch (const Error& error) {
    expect(error.status() == Status::weights || error.status() == Status::update);
    expect(std::string(error.what()).rfind(fetched + ": ", 0) == 0);
    expect(read_file(out, model.size(), Status::bug) == "old");
  }
  return 0;
}
