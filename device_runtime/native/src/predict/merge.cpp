#include "predict/merge.h"

#include "base/files.h"
#include "base/finite.h"
#include "base/places.h"
#include "formats/adapters.h"

namespace phonograd {

void merge(const std::string& weights, const std::string& out) {
  require_outputs({out}, {weights});
  const TensorFile file(weights);
  require_aligned(file);
  std::vector<TensorSpec> plain;
  for (const TensorSpec& tensor : file.specs()) {
    if (!is_adapter(tensor.name)) plain.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  if (plain.size() == file.specs().size()) {
    throw Error(Status::weights, weights + ": a model with adapters expected, found none; it is merged already");
  }
  AtomicFile written(out);
  stream_tensor_file(
      written, plain, {{"merged_sha256", file.sha256()}}, false, [&](const TensorSpec& tensor, const Sink& sink) {
        AdaptedRows rows(file, file.at(tensor.name));
        for (size_t number = 0; number < rows.count(); ++number) {
          const float* row = rows.row(number);
          const size_t bad = first_not_finite(row, rows.width());
          if (bad < rows.width()) {
            throw Error(Status::weights, weights + ": tensor " + tensor.name +
                                             " with its adapter: " + not_finite(row[bad], number * rows.width() + bad));
          }
          sink(row, rows.width() * sizeof(float));
        }
        file.release_pages();
      });
  file.require_unchanged();
  written.commit();
}

}  // namespace phonograd
