// Codecs of updates: how a trained tensor becomes the parts that are sent, and those trained weights again. FORMAT.md,
// "Updates". Links have two of them.
#pragma once

#include <cstdint>
#include <functional>
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

// What an update holds of one tensor: values of some of its rows, one row after the other.
struct SentValues {
  std::vector<uint32_t> rows;  // their numbers, rising
  bool deltas = true;          // to be added to the base's weights; else trained weights
  size_t unit = 1;             // values are decoded in pieces of a multiple of this many
  bool run_by_run = false;     // a piece ends where the next row is no neighbour
  // Decode values [start, start + count) to `out`. False, with nothing written, where none of them moved.
  std::function<bool(size_t start, size_t count, float* out)> decode;
};

class UpdateReader;

// One way to encode a float32 tensor.
struct Codec {
  const char* name;
  // `base` is the tensor's spec in the model that training started from; what is random comes from `seed`. Reads the
  // base in pieces and frees their pages, so that it never counts as resident memory.
  void (*encode)(const TensorFile& file, const TensorSpec& base, const Trained& trained, uint64_t seed,
                 EncodedParts& parts);
  // Adds the specs of the parts that an update must have of a tensor of the model. Throws Error(update) if it cannot
  // tell which.
  void (*expect)(const UpdateReader& update, const TensorSpec& tensor, std::vector<TensorSpec>& parts);
  // The values that a tensor's parts hold; the parts are as expected. The result must not outlive the update. It and
  // its `decode` throw Error(update) for parts that disagree.
  SentValues (*sent_values)(const UpdateReader& update, const TensorSpec& tensor);
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

// The names of all codecs.
std::vector<std::string> codec_names();
// The codec of that name. Throws Error(update) that lists them all. Call it before training, so that no work is lost.
const Codec& codec_named(const std::string& name);

}  // namespace phonograd
