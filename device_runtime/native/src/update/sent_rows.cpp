#include "update/sent_rows.h"

#include <cmath>
#include <numeric>

#include "update/rotation.h"

namespace phonograd {

size_t row_elements(const TensorSpec& spec) {
  return spec.shape.empty() ? 1 : static_cast<size_t>(spec.shape.back());
}

size_t row_count(const TensorSpec& spec) {
  const size_t width = row_elements(spec);
  return width == 0 ? 0 : spec.elements() / width;
}

size_t rows_as_large(const TensorSpec& tensor) {
  const size_t cost = sizeof(uint32_t) + row_elements(tensor) * sizeof(float);
  return (tensor.bytes + cost - 1) / cost;
}

std::array<TensorSpec, 2> numbered_rows(const TensorSpec& tensor, size_t rows) {
  const auto count = static_cast<int64_t>(rows), width = static_cast<int64_t>(row_elements(tensor));
  return {{{tensor.name + ".rows", "U32", {count}}, {tensor.name + ".values", "F32", {count, width}}}};
}

bool has_rows(const TensorSpec& tensor) {
  return row_count(tensor) > 1 && tensor.elements() > kBlock;
}

void add_mask(const TensorSpec& base, size_t rows, const std::vector<uint32_t>& sent, EncodedParts& parts) {
  if (sent.size() == rows) return;
  std::vector<uint8_t> bits((rows + 7) / 8);
  for (const uint32_t row : sent) bits[row / 8] = static_cast<uint8_t>(bits[row / 8] | 1u << row % 8);
  const int64_t bytes = static_cast<int64_t>(bits.size());
  parts.add(base.name + ".rows", "U8", {bytes}, std::move(bits));
}

std::vector<uint32_t> all_rows(const TensorSpec& tensor) {
  std::vector<uint32_t> rows(row_count(tensor));
  std::iota(rows.begin(), rows.end(), uint32_t{0});
  return rows;
}

std::vector<uint32_t> sent_rows(const UpdateReader& update, const TensorSpec& tensor) {
  const TensorSpec* mask = update.file().find(tensor.name + ".rows");
  if (mask == nullptr) return all_rows(tensor);
  const size_t count = row_count(tensor), bytes = (count + 7) / 8;
  const std::vector<int64_t> shape = {static_cast<int64_t>(bytes)};
  if (mask->dtype != "U8" || mask->shape != shape) {
    update.fail(describe(mask->name, "U8", shape) + " expected, found " +
                describe(mask->name, mask->dtype, mask->shape));
  }
  std::vector<uint8_t> bits(bytes);
  update.file().read(mask->offset, bytes, bits.data());
  std::vector<uint32_t> rows;
  for (size_t row = 0; row < 8 * bytes; ++row) {
    if (bits[row / 8] >> row % 8 & 1) rows.push_back(static_cast<uint32_t>(row));
  }
  if (rows.empty() || rows.back() >= count) {
    update.fail(mask->name + ": expected bits of 1 to " + std::to_string(count) + " rows");
  }
  return rows;
}

void expect_mask(const UpdateReader& update, const TensorSpec& tensor, std::vector<TensorSpec>& parts) {
  if (const TensorSpec* mask = update.file().find(tensor.name + ".rows")) parts.push_back(*mask);
}

void read_scales(const UpdateReader& update, const std::string& name, size_t first, size_t count, float* scales) {
  const std::string part = name + ".scales";
  update.file().read(update.file().at(part).offset + first * sizeof(float), count * sizeof(float), scales);
  for (size_t i = 0; i < count; ++i) {
    if (std::isfinite(scales[i]) && scales[i] >= 0) continue;
    update.fail(part + ": finite scales of at least 0 expected, found " + std::to_string(scales[i]));
  }
}

}  // namespace phonograd
