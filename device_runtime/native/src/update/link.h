// Writing links: what leads from a round's base model to the next one. FORMAT.md, "Links".
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "formats/hashed_file.h"
#include "formats/tensor_file.h"
#include "update/update_reader.h"

namespace phonograd {

// Write a link of codec rows-f32 from `base` to `model`, whose hash is `result_sha256`, and commit the file. A piece of
// a tensor is in memory. `info`: of the link. Throws Error: weights for models of other tensors, storage.
Written write_lossless_link(OutputFile& file, const TensorFile& base, const TensorFile& model, const UpdateInfo& info,
                            const std::string& result_sha256);

// What a link of codec top-rows is to lead to, and how near.
struct LossyLink {
  const TensorFile& model;     // the weights wanted, and the result's metadata
  const TensorFile* residual;  // float32 tensors to add to them, what earlier links left out; nullptr: none
  size_t rows;                 // sent of all matrices together, at most
  int bits;                    // a weight: 1, 2 or 4
};

// What was written: the link and the model that it leads to.
struct LinkedModel {
  Written link, model;
};

// Write a link of codec top-rows and the model that it leads to from `base`, atomically. The rows sent and a piece of a
// tensor are in memory. Throws Error: weights for models of other tensors, update for a result that is not finite,
// storage.
LinkedModel write_lossy_link(const std::string& link, const std::string& result, const TensorFile& base,
                             const LossyLink& wanted, const UpdateInfo& info);

}  // namespace phonograd
