#include "masked/masked_file.h"

#include "base/error.h"

namespace phonograd {
namespace {

constexpr const char* kValues = "values";

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw Error(Status::update, path + ": " + what);
}

}  // namespace

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

std::vector<TensorSpec> masked_specs(size_t values, int width) {
  TensorSpec spec;
  spec.name = kValues, spec.dtype = "U8", spec.shape = {static_cast<int64_t>(packed_bytes(values, width))};
  return {spec};
}

std::map<std::string, std::string> masked_metadata(const MaskedInfo& info) {
  return {{"format", kMaskedFormat},         {"version", "1"},
          {"base_sha256", info.base_sha256}, {"round", std::to_string(info.round)},
          {"cohort", to_hex(info.cohort)},   {"bits", std::to_string(info.width)}};
}

MaskedFile::MaskedFile(const std::string& path, const MaskedInfo& expected, size_t values)
    : file_(path, Status::update) {
  const auto wanted = masked_metadata(expected);
  for (const auto& [key, value] : wanted) {
    const auto found = file_.metadata().find(key);
    if (found == file_.metadata().end()) refuse(path, "no masked update: `" + key + "` is missing");
    if (found->second != value) {
      refuse(path, "`" + key + "` " + value + " expected, found " + found->second.substr(0, 80));
    }
  }
  const TensorSpec expected_spec = masked_specs(values, expected.width).front();
  const TensorSpec* spec = file_.find(kValues);
  if (spec == nullptr || spec->dtype != expected_spec.dtype || spec->shape != expected_spec.shape ||
      file_.specs().size() != 2) {
    refuse(path, describe(kValues, expected_spec.dtype, expected_spec.shape) + " and a checksum expected");
  }
  if (const std::string fault = checksum_fault(file_); !fault.empty()) refuse(path, fault + "; send it again");
}

const uint8_t* MaskedFile::bytes() const {
  return file_.data(*file_.find(kValues));
}

}  // namespace phonograd
