#include "update/draft.h"

#include "update/decoder.h"

namespace phonograd {
namespace {

constexpr size_t kTile = size_t{1} << 16;  // weights of a link in memory at a time

}  // namespace

Draft::Draft(const TensorFile& base, const Metadata& metadata, AtomicFile& file) : file_(file), specs_(base.specs()) {
  for (const TensorSpec& tensor : specs_) {
    if (tensor.dtype == "F32") continue;
    throw Error(Status::weights, base.path() + ": tensor " + describe(tensor.name, tensor.dtype, tensor.shape) +
                                     ": a model's F32 tensors expected; fetch the whole model");
  }
  const std::string header = tensor_file_header(specs_, metadata);
  file.write(header.data(), header.size());
  for (const TensorSpec& tensor : base.specs()) base.copy(tensor.offset, tensor.bytes, file);
  bytes_ = specs_.empty() ? header.size() : specs_.back().offset + specs_.back().bytes;
}

void Draft::apply(const UpdateReader& link, const std::set<std::string>& frozen) {
  link.check_parts(specs_, frozen);
  std::vector<float> values(kTile);
  std::vector<TileRun> runs;
  for (const TensorSpec& tensor : specs_) {
    if (frozen.count(tensor.name) != 0) continue;
    const auto read = [&](size_t start, size_t count, float* out) {
      file_.read_at(tensor.offset + start * sizeof(float), count * sizeof(float), out);
    };
    Decoder decoder(link, tensor, read, kTile);
    while (decoder.next(values.data(), values.size(), runs)) {
      check_finite(link, tensor, runs, values.data());
      const float* next = values.data();
      for (const TileRun& run : runs) {
        file_.write_at(tensor.offset + run.start * sizeof(float), next, run.count * sizeof(float));
        next += run.count;
      }
    }
  }
}

}  // namespace phonograd
