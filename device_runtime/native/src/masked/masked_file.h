// The masked update that a phone sends: a tensor file with values of w bits, packed. FORMAT.md, "Masked rounds".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/files.h"
#include "formats/tensor_file.h"
#include "masked/messages.h"

namespace phonograd {

constexpr const char* kMaskedFormat = "phonograd-masked";

struct MaskedInfo {
  std::string base_sha256;
  uint64_t round = 0;
  Hash cohort{};
  int width = 0;  // w
};

// Bytes of so many values.
constexpr size_t packed_bytes(size_t values, int width) {
  return (values * static_cast<size_t>(width) + 7) / 8;
}

// Values [count] modulo 2^width as bytes, or back; `count` is a multiple of 8, or the last ones. Each gets `width` bits
// from a byte's low ones on.
void pack(const uint32_t* values, size_t count, int width, uint8_t* bytes);
void unpack(const uint8_t* bytes, size_t count, int width, uint32_t* values);

// The header of such a file's tensor and metadata, for stream_tensor_file.
std::vector<TensorSpec> masked_specs(size_t values, int width);
std::map<std::string, std::string> masked_metadata(const MaskedInfo& info);

// One open for reading. Const methods are thread-safe.
class MaskedFile {
 public:
  // Reads the file once, to hold it to its checksum. Throws Error(update) unless it is of this cohort and has so many
  // values.
  MaskedFile(const std::string& path, const MaskedInfo& expected, size_t values);

  const uint8_t* bytes() const;

 private:
  TensorFile file_;
};

}  // namespace phonograd
