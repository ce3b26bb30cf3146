// The update a phone sends: a tensor file with the parts of one codec and the metadata that a server needs to fold it.
// FORMAT.md, "Updates".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "formats/hashed_file.h"
#include "formats/tensor_file.h"
#include "update/codec.h"

namespace phonograd {

constexpr const char* kUpdateFormat = "phonograd-update";
constexpr const char* kUpdateVersion = "3";
constexpr int64_t kMaxCount = 999'999'999'999'999'999;  // largest round, tokens and seed of an update: 18 digits

struct UpdateInfo {
  std::string base_sha256;  // hash of the tensor file the phone started from
  uint64_t round = 0;       // the server's number of the round it belongs to
  uint64_t tokens = 0;      // trained on: the update's weight in a token-weighted average
  std::string codec;
  uint64_t seed = 0;      // of the rehearsal draw and of random codecs
  bool one_step = false;  // trained by one step, with the gradient of the whole text
};

// Encode trained weights against `base` with the codec named in `info`, and write and commit the file. Skips tensors
// that the base's metadata lists as `frozen`. `trained` are the engine's tensors, in any order; they are not copied.
// Throws Error: weights if a tensor is not finite or does not fit the base, or the base was changed meanwhile; update
// for an unknown codec or a count above kMaxCount; storage if writing fails.
Written write_update(OutputFile& file, const TensorFile& base, const std::vector<TensorOut>& trained,
                     const UpdateInfo& info);

// The size in bytes of the file that write_update would write. Encodes, but writes nothing. Throws what write_update
// throws, except for storage.
size_t update_bytes(const TensorFile& base, const std::vector<TensorOut>& trained, const UpdateInfo& info);

}  // namespace phonograd
