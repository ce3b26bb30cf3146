#include "predict/quantize.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/files.h"
#include "base/finite.h"
#include "base/places.h"
#include "formats/adapters.h"
#include "predict/weights.h"

namespace phonograd {
namespace {

// Largest magnitude / 127. Throws Error(weights) for a value that is not finite.
float scale_of(const std::string& where, AdaptedRows& rows, size_t number) {
  const float* row = rows.row(number);
  const size_t bad = first_not_finite(row, rows.width());
  if (bad < rows.width()) throw Error(Status::weights, where + not_finite(row[bad], number * rows.width() + bad));
  float largest = 0;
  for (size_t i = 0; i < rows.width(); ++i) largest = std::max(largest, std::fabs(row[i]));
  return largest / 127;
}

// To the nearest, ties to even. Where the scale is subnormal, the quotient may pass 127.
void quantize_row(const float* row, size_t width, float scale, int8_t* out) {
  for (size_t i = 0; i < width; ++i) {
    const float level = scale > 0 ? std::nearbyint(row[i] / scale) : 0;
    out[i] = static_cast<int8_t>(std::min(127.0f, std::max(-127.0f, level)));
  }
}

const TensorSpec& fitting(const TensorFile& file, const ManifestTensor& tensor) {
  const TensorSpec& found = file.at(tensor.name);
  if (found.dtype != "F32" || found.shape != tensor.shape) {
    throw Error(Status::weights, file.path() + ": tensor " + describe(tensor.name, "F32", tensor.shape) +
                                     " expected, found " + describe(tensor.name, found.dtype, found.shape) +
                                     "; give weights of this model");
  }
  return found;
}

// The file's tensors: floats, which must be aligned, before integers.
struct Plan {
  struct Floats {
    const float* values;
    size_t count;
  };
  std::vector<TensorSpec> specs;
  std::vector<Floats> floats;              // whole tensors of one row, and scales
  std::vector<AdaptedRows> matrices;       // to be rounded
  std::vector<std::vector<float>> scales;  // of each matrix
};

Plan plan_quantization(const Manifest& manifest, const TensorFile& file) {
  Plan plan;
  std::vector<TensorSpec> integers;
  for (const ManifestTensor& tensor : manifest.tensors) {
    const TensorSpec& found = fitting(file, tensor);
    if (is_adapter(tensor.name)) continue;
    AdaptedRows rows(file, found);
    const std::string where = file.path() + ": tensor " + tensor.name + ": ";
    std::vector<float> scales;
    for (size_t row = 0; row < rows.count(); ++row) scales.push_back(scale_of(where, rows, row));
    file.release_pages();
    if (rows.count() == 1) {
      plan.specs.push_back({tensor.name, "F32", tensor.shape});
      plan.floats.push_back({rows.row(0), rows.width()});
      continue;
    }
    plan.scales.push_back(std::move(scales));  // which leaves its floats where they are
    plan.specs.push_back({tensor.name + kScales, "F32", {static_cast<int64_t>(rows.count())}});
    plan.floats.push_back({plan.scales.back().data(), rows.count()});
    plan.matrices.push_back(std::move(rows));
    integers.push_back({tensor.name, "I8", tensor.shape});
  }
  plan.specs.insert(plan.specs.end(), integers.begin(), integers.end());
  return plan;
}

}  // namespace

size_t quantize(const Manifest& manifest, const std::string& weights, const std::string& out) {
  std::vector<std::string> inputs = manifest.files;
  inputs.push_back(weights);
  require_outputs({out}, inputs);
  const TensorFile file(weights.empty() ? manifest.path("weights.safetensors") : weights);
  require_aligned(file);
  Plan plan = plan_quantization(manifest, file);
  if (file.specs().size() != manifest.tensors.size()) {
    throw Error(Status::weights, file.path() + ": " + std::to_string(manifest.tensors.size()) +
                                     " tensors expected, found " + std::to_string(file.specs().size()) +
                                     "; give weights of this model");
  }
  const std::string header = tensor_file_header(
      plan.specs, {{"base_sha256", file.sha256()}, {"format", kPredictionFormat}, {"version", kPredictionVersion}});
  AtomicFile written(out);
  written.write(header.data(), header.size());
  for (const Plan::Floats& floats : plan.floats) written.write(floats.values, floats.count * sizeof(float));
  std::vector<int8_t> levels;
  for (size_t i = 0; i < plan.matrices.size(); ++i) {
    AdaptedRows& rows = plan.matrices[i];
    levels.resize(rows.count() * rows.width());
    for (size_t row = 0; row < rows.count(); ++row)
      quantize_row(rows.row(row), rows.width(), plan.scales[i][row], levels.data() + row * rows.width());
    written.write(levels.data(), levels.size());
    file.release_pages();
  }
  file.require_unchanged();
  written.commit();
  return plan.specs.back().offset + plan.specs.back().bytes;
}

}  // namespace phonograd
