#include "masked/masked_file.h"

#include "base/error.h"

namespace phonograd {
void pack(const uint32_t* values, size_t count, int width, uint8_t* bytes) {
  uint64_t waiting = 0;
  int bits = 0;
  const uint64_t most = (uint64_t{1} << width) - 1;
  for (size_t i = 0; i < count; ++i) {
    waiting |= (values[i] & most) << bits;
    for (bits += width; bits >= 8; bits -= 8, waiting >>= 8) *bytes++ = static_cast<uint8_t>(waiting);
  }
  if (bits > 0) *bytes = static_cast<uint8_t>(waiting);
}

void unpack(const uint8_t* bytes, size_t count, int width, uint32_t* values) {
  uint64_t waiting = 0;
  int bits = 0;
  const uint64_t most = (uint64_t{1} << width) - 1;
  for (size_t i = 0; i < count; ++i) {
    for (; bits < width; bits += 8) waiting |= uint64_t{*bytes++} << bits;
    values[i] = static_cast<uint32_t>(waiting & most);
    waiting >>= width, bits -= width;
  }
}

TensorSpec masked_spec(size_t values, int width) {
  TensorSpec spec;
  spec.name = "values", spec.dtype = "U8", spec.shape = {static_cast<int64_t>(packed_bytes(values, width))};
  return spec;
}

std::map<std::string, std::string> masked_metadata(const Cohort& cohort, int width) {
  return {{"format", "phonograd-masked"},
          {"version", "1"},
          {"base_sha256", cohort.grid().base_sha256},
          {"round", std::to_string(cohort.round())},
          {"cohort", cohort.id()},
          {"bits", std::to_string(width)}};
}

void check_masked(const TensorFile& file, const Cohort& cohort, size_t values, int width) {
  const auto refuse = [&](const std::string& what) { throw Error(Status::update, file.path() + ": " + what); };
  for (const auto& [key, value] : masked_metadata(cohort, width)) {
    const auto found = file.metadata().find(key);
    const std::string said = found == file.metadata().end() ? "none" : found->second;
    if (said != value) refuse("`" + key + "` " + value + " expected, found " + said.substr(0, 80));
  }
  const TensorSpec expected = masked_spec(values, width);
  const TensorSpec* spec = file.find(expected.name);
  if (spec == nullptr || spec->dtype != expected.dtype || spec->shape != expected.shape || file.specs().size() != 2) {
    refuse(describe(expected.name, expected.dtype, expected.shape) + " and a checksum expected");
  }
  if (const std::string fault = checksum_fault(file); !fault.empty()) refuse(fault + "; send it again");
}

}  // namespace phonograd
