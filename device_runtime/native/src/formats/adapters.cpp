#include "formats/adapters.h"

#include <string_view>

namespace phonograd {
namespace {

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

[[noreturn]] void refuse(const TensorFile& file, const TensorSpec& found, const std::string& expected) {
  throw Error(Status::weights, file.path() + ": tensor " + expected + " expected, found " +
                                   describe(found.name, found.dtype, found.shape) + "; export the model again");
}

const float* half(const TensorFile& file, const std::string& name, const std::vector<int64_t>& shape) {
  const TensorSpec& found = file.at(name);
  if (found.dtype != "F32" || found.shape != shape) refuse(file, found, describe(name, "F32", shape));
  return reinterpret_cast<const float*>(file.data(found));
}

const TensorSpec& with_rows(const TensorFile& file, const TensorSpec& tensor) {
  if (tensor.dtype != "F32" || tensor.elements() == 0 || tensor.shape.empty()) refuse(file, tensor, "F32 rows");
  return tensor;
}

}  // namespace

bool is_adapter(const std::string& name) {
  return ends_with(name, kAdapterA) || ends_with(name, kAdapterB);
}

AdaptedRows::AdaptedRows(const TensorFile& file, const TensorSpec& tensor)
    : width_(static_cast<size_t>(with_rows(file, tensor).shape.back())),
      count_(tensor.elements() / width_),
      values_(reinterpret_cast<const float*>(file.data(tensor))) {
  const TensorSpec* b = file.find(tensor.name + kAdapterB);
  if (b == nullptr) return;
  const int64_t rank = b->shape.empty() ? 0 : b->shape.back();
  a_ = half(file, tensor.name + kAdapterA, {rank, tensor.shape.back()});
  b_ = half(file, tensor.name + kAdapterB, {static_cast<int64_t>(count_), rank});
  rank_ = static_cast<size_t>(rank);
  sums_.resize(width_);
  row_.resize(width_);
}

// A product of floats is exact in double, so the sums are the same with fused operations and without.
const float* AdaptedRows::row(size_t number) {
  const float* values = values_ + number * width_;
  if (b_ == nullptr) return values;
  sums_.assign(values, values + width_);
  for (size_t r = 0; r < rank_; ++r) {
    const double factor = b_[number * rank_ + r];
    for (size_t i = 0; i < width_; ++i) sums_[i] += factor * static_cast<double>(a_[r * width_ + i]);
  }
  for (size_t i = 0; i < width_; ++i) row_[i] = static_cast<float>(sums_[i]);
  return row_.data();
}

}  // namespace phonograd
