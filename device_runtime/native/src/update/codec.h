// Codecs of updates: how a trained tensor becomes the parts that are sent. FORMAT.md, "Updates";
// device_runtime/update/.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "formats/tensor_file.h"

namespace phonograd {

// The parts of an update, in order. Owns computed parts; whole tensors point into the engine's memory.
struct EncodedParts {
  std::vector<TensorOut> tensors;
  std::list<std::shared_ptr<const void>> made;

  template <typename Element>
  void add(std::string name, const char* dtype, std::vector<int64_t> shape, std::vector<Element> data) {
    const auto kept = std::make_shared<std::vector<Element>>(std::move(data));
    tensors.push_back({std::move(name), dtype, std::move(shape), kept->data()});
    made.push_back(kept);
  }
};

// A trained tensor: `data` has as many elements as the base's. Where `rows` is given, only the rows of these numbers,
// rising, may differ from the base's, and no others are read.
struct Trained {
  const float* data = nullptr;
  const std::vector<uint32_t>* rows = nullptr;
};

class Draft;
class Link;

// Encodes one float32 tensor: `base` is its spec in the model that training started from; what is random comes from
// `seed`. Reads the base in pieces and lets go of its pages again, so that it never counts as resident memory.
struct Codec {
  const char* name;
  void (*encode)(const TensorFile& file, const TensorSpec& base, const Trained& trained, uint64_t seed,
                 EncodedParts& parts);
  // Of the codecs that links have; nullptr: of the others. `expect` adds the specs of the parts that a link must have
  // of a tensor of the model; `apply` writes what they say, once they were found to be these. Both throw Error(update)
  // for parts that do not fit the tensor, and `apply` Error(weights) for a weight that is not finite.
  void (*expect)(const TensorFile& link, const TensorSpec& tensor, std::vector<TensorSpec>& parts) = nullptr;
  void (*apply)(const Link& link, const TensorSpec& tensor, Draft& draft) = nullptr;
};

extern const Codec kFullF32;    // every trained weight
extern const Codec kRowsF32;    // lossless: leaves out unchanged rows where that is smaller
extern const Codec kDeltaF16;   // deltas of the changed rows, in 16 bits
extern const Codec kDeltaBF16;  // the same in bfloat16
extern const Codec kDeltaInt8;  // the same in 8 bits, stochastically rounded
extern const Codec kRotQ4;      // all deltas, rotated and quantised
extern const Codec kRotQ2;
extern const Codec kRotQ1;
extern const Codec kTopRows;  // rows sampled by norm, rotated and quantised

}  // namespace phonograd
