// The update a phone sends: a tensor file with the parts of one codec and the facts a server needs to fold it.
// FORMAT.md, "Updates"; byte for byte what device_runtime/update/update_file.py's write_update writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "formats/tensor_file.h"
#include "update/codec.h"

namespace phonograd {

constexpr int64_t kMaxCount = 999'999'999'999'999'999;  // of an update's round, tokens and seed: 18 digits

struct UpdateInfo {
  std::string base_sha256;  // hash of the tensor file the phone started from
  uint64_t round = 0;       // the server's number of the round it belongs to
  uint64_t tokens = 0;      // trained: the weight of a token-weighted average
  std::string codec;
  uint64_t seed = 0;  // of the rehearsal draw and of random codecs
};

// The names of the codecs there are.
std::vector<std::string> codec_names();
// The codec of that name. Throws Error(update) naming those there are; asked before long work, so that none is lost.
const Codec& codec_named(const std::string& name);

// Encode trained weights against `base` with the codec `info` names and write the file atomically; returns its bytes.
// Of tensors that the base's metadata has as `frozen` nothing is written.
// `trained` are the engine's own tensors, in any order; no copy is made of them. Throws Error: weights for tensors that
// are not finite or do not fit the base, or a base that was changed meanwhile; update for an unknown codec or a count
// past kMaxCount; storage when the disk refuses.
size_t write_update(const std::string& path, const TensorFile& base, const std::vector<TensorOut>& trained,
                    const UpdateInfo& info);

// The bytes of the file that write_update would write; it encodes, and writes nothing. Throws what write_update throws,
// but for storage.
size_t update_bytes(const TensorFile& base, const std::vector<TensorOut>& trained, const UpdateInfo& info);

}  // namespace phonograd
