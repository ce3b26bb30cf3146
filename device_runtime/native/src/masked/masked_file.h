// The masked update that a phone sends: a tensor file with values of w bits, packed. FORMAT.md, "Masked rounds".
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "formats/tensor_file.h"
#include "masked/cohort.h"

namespace phonograd {

// Bytes of so many values.
constexpr size_t packed_bytes(size_t values, int width) {
  return (values * static_cast<size_t>(width) + 7) / 8;
}

// Values [count] modulo 2^width as bytes, or back; `count` is a multiple of 8, or the last ones. Each gets `width` bits
// from a byte's low ones on.
void pack(const uint32_t* values, size_t count, int width, uint8_t* bytes);
void unpack(const uint8_t* bytes, size_t count, int width, uint32_t* values);

// The header of such a file's tensor and metadata, for stream_tensor_file.
TensorSpec masked_spec(size_t values, int width);
std::map<std::string, std::string> masked_metadata(const Cohort& cohort, int width);

// Throws Error(update) unless the file is of this cohort, whole, and has so many values. Reads all of it.
void check_masked(const TensorFile& file, const Cohort& cohort, size_t values, int width);

}  // namespace phonograd
