// The weights that predictions are computed with: a model's own, float32, or its prediction weights, int8. FORMAT.md,
// "Prediction weights".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/manifest.h"
#include "formats/tensor_file.h"

namespace phonograd {

constexpr const char* kPredictionFormat = "phonograd-prediction";
constexpr const char* kPredictionVersion = "1";
constexpr const char* kScales = ".scales";

// A matrix [rows, columns], its rows dense: `floats`, plus b a if there is an adapter; or `integers`, each row times
// its scale.
struct WeightMatrix {
  int64_t rows = 0, columns = 0;
  const float* floats = nullptr;
  const int8_t* integers = nullptr;
  const float* scales = nullptr;
  int64_t rank = 0;                        // 0: no adapter
  const float *a = nullptr, *b = nullptr;  // [rank, columns], [rows, rank]

  WeightMatrix part(int64_t first, int64_t count) const;  // `count` rows
};

// A file of either kind, mapped read-only: pages load when they are first used. Const methods are thread-safe.
class PredictionWeights {
 public:
  // Throws Error(weights) for a damaged file, or one that is neither.
  explicit PredictionWeights(const std::string& path);

  const std::string& path() const { return file_.path(); }
  bool int8() const { return int8_; }
  // The identity of the model that these prediction weights were computed from.
  const std::string& base_sha256() const { return base_sha256_; }

  // A tensor of the model as rows of its last dimension, with an adapter of this rank where that is not 0 and the
  // weights are float32; or one without rows. Throws Error(weights) naming a tensor
  // that is missing, has another shape or dtype, or scales that are not finite or below 0.
  WeightMatrix matrix(const std::string& name, const std::vector<int64_t>& shape, int64_t rank);
  const float* vector(const std::string& name, const std::vector<int64_t>& shape);
  // Throws Error(weights) if the file has tensors that were not asked for: it is another model's.
  void require_no_more() const;
  // Throws Error(weights) if the file was changed or truncated since it was opened.
  void require_unchanged() const { file_.require_unchanged(); }

 private:
  const unsigned char* tensor(const std::string& name, const char* dtype, const std::vector<int64_t>& shape);

  TensorFile file_;
  bool int8_ = false;
  std::string base_sha256_;
  size_t used_ = 0;
};

}  // namespace phonograd
