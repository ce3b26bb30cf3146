// Any bytes as a JSON document and as manifest.json: what is read survives being written and read again, or Error.
#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "formats/json.h"
#include "formats/manifest.h"

using namespace phonograd;

static void expect(bool good) {
  if (!good) std::abort();
}

static void write_over(const std::string& path, const uint8_t* data, size_t size) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  expect(file >= 0 && write(file, data, size) == static_cast<ssize_t>(size));
  close(file);
}

// A folder with all files a manifest lists, of one byte each. In $TMPDIR, which run.sh removes.
static std::string make_folder() {
  const char* place = std::getenv("TMPDIR");
  std::string folder = std::string(place != nullptr ? place : "/tmp") + "/fuzz-manifest-XXXXXX";
  expect(mkdtemp(folder.data()) != nullptr);
  for (const char* name : {"training_model.onnx", "eval_model.onnx", "optimizer_model.onnx", "checkpoint",
                           "weights.safetensors", "vocab.txt"}) {
    write_over(folder + "/" + name, reinterpret_cast<const uint8_t*>("x"), 1);
  }
  return folder;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const std::string once = json::parse(text, Status::text, "fuzz").text(size_t{1} << 40);
    expect(json::parse(once, Status::text, "once").text(size_t{1} << 40) == once);
  } catch (const Error& error) {
    expect(error.status() == Status::text && std::string(error.what()).rfind("fuzz is not valid JSON", 0) == 0);
    return 0;  // the manifest's reader begins with the same parser: a file would only cost time
  }
  static const std::string folder = make_folder();
  write_over(folder + "/manifest.json", data, size);
  try {
    const Manifest manifest = read_manifest(folder);
    expect(manifest.hidden >= 1 && manifest.minibatch >= 1 && manifest.learning_rate > 0);
    expect(manifest.weights_sha256.size() == 64);
  } catch (const Error& error) {
    expect(error.status() == Status::artifacts && std::string(error.what()).rfind(folder, 0) == 0);
  }
  return 0;
}
