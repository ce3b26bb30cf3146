#include "update/draft.h"

#include <algorithm>

#include "base/finite.h"

namespace phonograd {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 18;

void copy(const TensorFile& from, const TensorSpec& tensor, AtomicFile& to) {
  std::vector<char> piece(std::min(kPieceBytes, tensor.bytes));
  for (size_t done = 0; done < tensor.bytes; done += piece.size()) {
    const size_t bytes = std::min(piece.size(), tensor.bytes - done);
    from.read(tensor.offset + done, bytes, piece.data());
    to.write(piece.data(), bytes);
  }
}

}  // namespace

Draft::Draft(const TensorFile& base, const Metadata& metadata, AtomicFile& file) : file_(file), specs_(base.specs()) {
  for (const TensorSpec& tensor : specs_) {
    if (tensor.dtype == "F32") continue;
    throw Error(Status::weights, base.path() + ": tensor " + describe(tensor.name, tensor.dtype, tensor.shape) +
                                     ": a model's F32 tensors expected; fetch the whole model");
  }
  const std::string header = tensor_file_header(specs_, metadata);
  file.write(header.data(), header.size());
  for (const TensorSpec& tensor : base.specs()) copy(base, tensor, file);
  bytes_ = specs_.empty() ? header.size() : specs_.back().offset + specs_.back().bytes;
}

void Draft::write(const std::string& source, const TensorSpec& tensor, size_t start, size_t count,
                  const float* values) {
  const size_t bad = first_not_finite(values, count);
  if (bad < count) {
    const char* found = std::isnan(values[bad]) ? "nan" : values[bad] > 0 ? "inf" : "-inf";
    throw Error(Status::update, source + ": tensor " + tensor.name + ": element " + std::to_string(start + bad) +
                                    " is " + found + ", expected a finite number; fetch the whole model");
  }
  file_.write_at(tensor.offset + start * sizeof(float), values, count * sizeof(float));
}

void Draft::add(const std::string& source, const TensorSpec& tensor, size_t start, size_t count, const float* deltas) {
  sums_.resize(count);
  file_.read_at(tensor.offset + start * sizeof(float), count * sizeof(float), sums_.data());
  for (size_t i = 0; i < count; ++i) {
    const float sum = sums_[i] + deltas[i];
    if (sum != sums_[i]) sums_[i] = sum;
  }
  write(source, tensor, start, count, sums_.data());
}

}  // namespace phonograd
