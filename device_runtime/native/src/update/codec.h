// Codecs of updates: how a trained tensor becomes the parts that travel. FORMAT.md, "Updates"; device_runtime/codecs/.
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "formats/tensor_file.h"

namespace phonograd {

// The parts of an update, in their order. Whole tensors are the engine's own memory, never copied; what had to be
// gathered (32-bit words: row numbers, or floats as their bits) is owned here.
struct EncodedParts {
  std::vector<TensorOut> tensors;
  std::list<std::vector<uint32_t>> gathered;  // a list: what `tensors` points to stays where it is
};

// Encodes one float32 tensor: `base` is its spec in the model that training started from, `trained` as many elements.
// Reads the base in pieces and lets go of its pages again, so that it never counts as resident memory.
struct Codec {
  const char* name;
  void (*encode)(const TensorFile& file, const TensorSpec& base, const float* trained, EncodedParts& parts);
};

extern const Codec kFullF32;  // every trained weight
extern const Codec kRowsF32;  // lossless: rows that did not move are left out, where that is smaller

}  // namespace phonograd
