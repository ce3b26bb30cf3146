#include "predict/weights.h"

#include <algorithm>
#include <cmath>

#include "formats/adapters.h"
#include "formats/sha256.h"

namespace phonograd {
namespace {

int64_t product(const std::vector<int64_t>& shape, size_t dimensions) {
  int64_t elements = 1;
  for (size_t i = 0; i < dimensions; ++i) elements *= shape[i];
  return elements;
}

}  // namespace

WeightMatrix WeightMatrix::part(int64_t first, int64_t count) const {
  WeightMatrix rows_of = *this;
  rows_of.rows = count;
  if (floats != nullptr) rows_of.floats = floats + first * columns;
  if (b != nullptr) rows_of.b = b + first * rank;
  if (integers != nullptr) {
    rows_of.integers = integers + first * columns;
    rows_of.scales = scales + first;
  }
  return rows_of;
}

PredictionWeights::PredictionWeights(const std::string& path) : file_(path) {
  const auto& metadata = file_.metadata();
  const auto said = [&](const char* key) {
    const auto found = metadata.find(key);
    return found == metadata.end() ? std::string() : found->second;
  };
  const std::string format = said("format");
  if (format != kPredictionFormat) {
    if (metadata.count("format") != 0 && metadata.count("base_sha256") != 0) {
      throw Error(Status::weights, path + ": weights or prediction weights expected, found the format '" + format +
                                       "'; give a model's file");
    }
    return;
  }
  int8_ = true;
  if (said("version") != kPredictionVersion) {
    throw Error(Status::weights, path + ": prediction weights of version " + kPredictionVersion +
                                     " expected, found version '" + said("version") + "'; quantize the model again");
  }
  base_sha256_ = said("base_sha256");
  if (!is_sha256(base_sha256_)) {
    throw Error(Status::weights, path + ": base_sha256 is '" + base_sha256_ +
                                     "', expected 64 hexadecimal digits; quantize the model again");
  }
}

const unsigned char* PredictionWeights::tensor(const std::string& name, const char* dtype,
                                               const std::vector<int64_t>& shape) {
  const TensorSpec& found = file_.at(name);
  if (found.dtype != dtype || found.shape != shape) {
    throw Error(Status::weights, file_.path() + ": tensor " + describe(name, dtype, shape) + " expected, found " +
                                     describe(name, found.dtype, found.shape) + "; give a file of this model");
  }
  if (found.dtype == "F32" && found.offset % sizeof(float) != 0) {
    throw Error(Status::weights, file_.path() + ": tensor " + name + " begins at byte " + std::to_string(found.offset) +
                                     ", expected a multiple of 4; write it again with phonograd or safetensors");
  }
  ++used_;
  return file_.data(found);
}

WeightMatrix PredictionWeights::matrix(const std::string& name, const std::vector<int64_t>& shape, int64_t rank) {
  const int64_t rows = product(shape, shape.size() - 1);
  WeightMatrix found;
  found.rows = rows, found.columns = shape.back();
  if (!int8_ || rows == 1) {
    found.floats = vector(name, shape);
    if (rank == 0 || int8_) return found;
    found.rank = rank;
    found.a = vector(name + kAdapterA, {rank, shape.back()});
    found.b = vector(name + kAdapterB, {rows, rank});
    return found;
  }
  found.integers = reinterpret_cast<const int8_t*>(tensor(name, "I8", shape));
  found.scales = reinterpret_cast<const float*>(tensor(name + kScales, "F32", {rows}));
  const float* bad = std::find_if(found.scales, found.scales + rows, [](float s) { return !(s >= 0 && s < INFINITY); });
  if (bad != found.scales + rows) {
    throw Error(Status::weights, file_.path() + ": tensor " + name + kScales + ": element " +
                                     std::to_string(bad - found.scales) + " is " + std::to_string(*bad) +
                                     ", expected a finite number of at least 0; quantize the model again");
  }
  return found;
}

const float* PredictionWeights::vector(const std::string& name, const std::vector<int64_t>& shape) {
  return reinterpret_cast<const float*>(tensor(name, "F32", shape));
}

void PredictionWeights::require_no_more() const {
  if (used_ == file_.specs().size()) return;
  throw Error(Status::weights, file_.path() + ": " + std::to_string(used_) + " tensors expected, found " +
                                   std::to_string(file_.specs().size()) + "; give a file of this model");
}

}  // namespace phonograd
