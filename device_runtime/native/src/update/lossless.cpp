// full-f32: every trained weight, as paper P sends them. rows-f32: the same without unchanged rows, where that is
// smaller. A row is the last dimension.
#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "update/codec.h"
#include "update/deltas.h"
#include "update/draft.h"
#include "update/link.h"

namespace phonograd {
namespace {

constexpr size_t kPiece = size_t{1} << 16;  // floats of a link in memory at a time

void encode_full(const TensorFile&, const TensorSpec& base, const Trained& trained, uint64_t, EncodedParts& parts) {
  parts.tensors.push_back({base.name, base.dtype, base.shape, trained.data});
}

void encode_rows(const TensorFile& file, const TensorSpec& base, const Trained& trained, uint64_t seed,
                 EncodedParts& parts) {
  const size_t width = row_elements(base), row_bytes = width * sizeof(float);
  // The fewest changed rows that take as many bytes as the whole: each comes with a row number of 4 bytes.
  const size_t cost = sizeof(uint32_t) + row_bytes, enough = (base.bytes + cost - 1) / cost;
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

void expect_rows(const TensorFile& link, const TensorSpec& tensor, std::vector<TensorSpec>& parts) {
  if (link.find(tensor.name) != nullptr) return parts.push_back(tensor);
  const TensorSpec* rows = link.find(tensor.name + ".rows");
  const std::string whole = describe(tensor.name, tensor.dtype, tensor.shape);
  if (rows == nullptr || rows->shape.size() != 1) {
    throw Error(Status::update, link.path() + ": tensor " + whole +
                                    " or its rows U32[n] expected, found neither; "
                                    "fetch the whole model");
  }
  const int64_t count = rows->shape[0], width = static_cast<int64_t>(row_elements(tensor));
  if (width != 0 && static_cast<size_t>(count) > tensor.elements() / row_elements(tensor)) {
    throw Error(Status::update, link.path() + ": " + describe(rows->name, rows->dtype, rows->shape) +
                                    ": more rows than tensor " + whole + " has; fetch the whole model");
  }
  parts.push_back({tensor.name + ".rows", "U32", {count}});
  parts.push_back({tensor.name + ".values", "F32", {count, width}});
}

// Writes `count` floats that begin at byte `at` of the link over those from element `start` on, a piece at a time.
void write_values(const TensorFile& link, size_t at, const TensorSpec& tensor, size_t start, size_t count,
                  Draft& draft) {
  std::vector<float> piece(std::min(count, kPiece));
  for (size_t done = 0; done < count; done += piece.size()) {
    const size_t some = std::min(piece.size(), count - done);
    link.read(at + done * sizeof(float), some * sizeof(float), piece.data());
    draft.write(link.path(), tensor, start + done, some, piece.data());
  }
}

void apply_rows(const Link& link, const TensorSpec& tensor, Draft& draft) {
  const TensorFile& file = link.file();
  if (const TensorSpec* whole = file.find(tensor.name)) {
    return write_values(file, whole->offset, tensor, 0, tensor.elements(), draft);
  }
  const TensorSpec& part = file.at(tensor.name + ".rows");
  std::vector<uint32_t> rows(part.elements());
  file.read(part.offset, part.bytes, rows.data());
  const size_t width = row_elements(tensor), limit = width == 0 ? 0 : tensor.elements() / width;
  const bool rising = std::adjacent_find(rows.begin(), rows.end(), std::greater_equal<>()) == rows.end();
  if (!rising || (!rows.empty() && rows.back() >= limit)) {
    throw Error(Status::update, file.path() + ": " + part.name + ": expected rising row numbers below " +
                                    std::to_string(limit) + "; fetch the whole model");
  }
  const size_t values = file.at(tensor.name + ".values").offset;
  for (size_t first = 0, last = 0; first < rows.size(); first = last) {
    last = first + 1;
    while (last < rows.size() && rows[last] == rows[last - 1] + 1) ++last;  // adjacent rows are written as one
    write_values(file, values + first * width * sizeof(float), tensor, rows[first] * width, (last - first) * width,
                 draft);
  }
}

}  // namespace

const Codec kFullF32{"full-f32", encode_full};
const Codec kRowsF32{"rows-f32", encode_rows, expect_rows, apply_rows};

}  // namespace phonograd
