// full-f32: every trained weight, as paper P sends them. rows-f32: the same without unchanged rows, where that is
// smaller. A row is the last dimension.
#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "update/deltas.h"
#include "update/sent_rows.h"
#include "update/update_reader.h"

namespace phonograd {
namespace {

void encode_full(const TensorFile&, const TensorSpec& base, const Trained& trained, uint64_t, EncodedParts& parts) {
  parts.tensors.push_back({base.name, base.dtype, base.shape, trained.data});
}

void encode_rows(const TensorFile& file, const TensorSpec& base, const Trained& trained, uint64_t seed,
                 EncodedParts& parts) {
  const size_t width = row_elements(base), row_bytes = width * sizeof(float);
  const size_t enough = rows_as_large(base);
  std::vector<uint32_t> moved = moved_rows(file, base, trained, enough);
  if (moved.size() >= enough) return encode_full(file, base, trained, seed, parts);

  std::vector<float> values(moved.size() * width);
  for (size_t i = 0; i < moved.size(); ++i) {
    std::memcpy(values.data() + i * width, trained.data + moved[i] * width, row_bytes);
  }
  const int64_t count = static_cast<int64_t>(moved.size());
  parts.add(base.name + ".rows", "U32", {count}, std::move(moved));
  parts.add(base.name + ".values", "F32", {count, static_cast<int64_t>(width)}, std::move(values));
}

// Trained weights as they are, from byte `at` of the update on.
SentValues weights_at(const UpdateReader& update, size_t at) {
  SentValues sent;
  sent.deltas = false;
  sent.decode = [&file = update.file(), at](size_t start, size_t count, float* out) {
    file.read(at + start * sizeof(float), count * sizeof(float), out);
    return true;
  };
  return sent;
}

void expect_full(const UpdateReader&, const TensorSpec& tensor, std::vector<TensorSpec>& parts) {
  parts.push_back(tensor);
}

SentValues sent_full(const UpdateReader& update, const TensorSpec& tensor) {
  SentValues sent = weights_at(update, update.file().at(tensor.name).offset);
  sent.rows = all_rows(tensor);
  return sent;
}

void expect_rows(const UpdateReader& update, const TensorSpec& tensor, std::vector<TensorSpec>& parts) {
  if (update.file().find(tensor.name) != nullptr) return parts.push_back(tensor);
  const TensorSpec* rows = update.file().find(tensor.name + ".rows");
  const std::string whole = "tensor " + describe(tensor.name, tensor.dtype, tensor.shape);
  if (rows == nullptr || rows->shape.size() != 1) update.fail(whole + " or its rows U32[n] expected, found neither");
  const int64_t count = rows->shape[0], width = static_cast<int64_t>(row_elements(tensor));
  if (width != 0 && static_cast<size_t>(count) > row_count(tensor)) {
    update.fail(describe(rows->name, rows->dtype, rows->shape) + ": more rows than " + whole + " has");
  }
  for (TensorSpec& part : numbered_rows(tensor, static_cast<size_t>(count))) parts.push_back(std::move(part));
}

SentValues sent_some(const UpdateReader& update, const TensorSpec& tensor) {
  const TensorFile& file = update.file();
  if (file.find(tensor.name) != nullptr) return sent_full(update, tensor);
  SentValues sent = weights_at(update, file.at(tensor.name + ".values").offset);
  const TensorSpec& part = file.at(tensor.name + ".rows");
  sent.rows.resize(part.elements());
  file.read(part.offset, part.bytes, sent.rows.data());
  const size_t limit = row_count(tensor);
  const bool rising = std::adjacent_find(sent.rows.begin(), sent.rows.end(), std::greater_equal<>()) == sent.rows.end();
  if (!rising || (!sent.rows.empty() && sent.rows.back() >= limit)) {
    update.fail(part.name + ": expected rising row numbers below " + std::to_string(limit));
  }
  sent.unit = row_elements(tensor);
  sent.run_by_run = true;
  return sent;
}

}  // namespace

const Codec kFullF32{"full-f32", encode_full, expect_full, sent_full};
const Codec kRowsF32{"rows-f32", encode_rows, expect_rows, sent_some};

}  // namespace phonograd
