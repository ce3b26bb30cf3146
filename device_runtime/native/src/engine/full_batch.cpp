#include "engine/full_batch.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "formats/tensor_file.h"

namespace phonograd {
namespace {

constexpr double kClipEpsilon = 1e-6;  // as in operators/update
constexpr size_t kPiece = 1024;        // elements

// A parameter's trained rows and those of the base, [rows, width]; a packed one's are the candidates'.
struct Moved {
  const Parameter& parameter;
  const float* base;
  size_t rows, width;

  Moved(const Parameter& moved, const TensorFile& file)
      : parameter(moved), base(reinterpret_cast<const float*>(file.data(file.at(moved.name)))) {
    const size_t elements = file.at(moved.name).elements();
    const bool packed = moved.packed != nullptr;
    width = packed ? elements / static_cast<size_t>(moved.shape[0]) : static_cast<size_t>(moved.shape.back());
    rows = packed ? moved.packed_rows->size() : elements / width;
  }

  float* now(size_t row) const {
    return (parameter.packed != nullptr ? parameter.packed : parameter.data) + row * width;
  }
  const float* before(size_t row) const {
    return base + (parameter.packed != nullptr ? (*parameter.packed_rows)[row] : row) * width;
  }

  double squared_norm(const KernelSet& kernels, size_t row) const {
    float delta[kPiece];
    double total = 0;
    for (size_t at = 0; at < width; at += kPiece) {
      const size_t count = std::min(kPiece, width - at);
      for (size_t i = 0; i < count; ++i) delta[i] = now(row)[at + i] - before(row)[at + i];
      total += kernels.sum_of_squares(count, delta);
    }
    return total;
  }
  void scale(size_t row, float factor) const {
    for (size_t i = 0; i < width; ++i) now(row)[i] = before(row)[i] + factor * (now(row)[i] - before(row)[i]);
  }
};

}  // namespace

void clip_movement(Compute& compute, const TensorFile& base, const std::vector<Parameter>& parameters, float clip_norm,
                   float learning_rate) {
  std::vector<Moved> all;
  std::vector<std::vector<double>> squares;  // by parameter and row
  double total = 0;
  for (const Parameter& parameter : parameters) {
    const Moved& moved = all.emplace_back(parameter, base);
    std::vector<double>& found = squares.emplace_back(moved.rows);
    compute.pool.for_each(static_cast<int64_t>(moved.rows), [&](int64_t row, int) {
      const auto at = static_cast<size_t>(row);
      found[at] = moved.squared_norm(compute.kernels, at);
    });
    for (const double square : found) total += square;
    base.release_pages();
  }
  const double norm = std::sqrt(total) / static_cast<double>(learning_rate);
  if (!std::isfinite(norm)) {
    throw Error(Status::training,
                "the gradient's norm is not finite; lower the learning rate (" + std::to_string(learning_rate) + ")");
  }
  const double factor = static_cast<double>(clip_norm) / (norm + kClipEpsilon);
  if (factor >= 1) return;
  for (size_t i = 0; i < all.size(); ++i) {
    compute.pool.for_each(static_cast<int64_t>(all[i].rows), [&](int64_t row, int) {
      const auto at = static_cast<size_t>(row);
      if (squares[i][at] > 0) all[i].scale(at, static_cast<float>(factor));
    });
    base.release_pages();
  }
}

}  // namespace phonograd
