#include "engine/loaded_model.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/finite.h"

namespace phonograd {

namespace {

const Bf16Kernels* bf16_of(const EngineOptions& options) {
  if (options.precision == Precision::fp32) return nullptr;
  return &bf16_kernels(kernel_set(options.kernels.c_str()), options.precision == Precision::bf16_emulated);
}

// Whether a tensor has the name of PyTorch's LSTM and GRU modules, whatever the module is called: `rnn.weight_ih_l0`.
bool is_torch_weight(const std::string& name) {
  const std::string end = "weight_ih_l0";
  return name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
}

bool is_of_teacher(const std::string& input) {
  return input.rfind(kTeacherPrefix, 0) == 0;
}

}  // namespace

std::string tensor_name(const std::string& input) {
  return is_of_teacher(input) ? input.substr(std::strlen(kTeacherPrefix)) : input;
}

LoadedModel::LoadedModel(const std::string& folder, const std::string& weights, const EngineOptions& chosen,
                         const OutputSample& sample)
    : manifest(read_manifest(folder)),
      options(chosen),
      file(weights.empty() ? manifest.path("weights.safetensors") : weights),
      compute(chosen.threads, chosen.pin_threads, kernel_set(chosen.kernels.c_str()), bf16_of(chosen)),
      teacher(chosen.teacher.empty() ? nullptr
                                     : std::make_unique<const Teacher>(chosen.teacher, manifest.vocabulary, sample)),
      candidates(teacher == nullptr ? sample : candidates_within(sample, INT64_MIN, manifest.vocabulary),
                 manifest.vocabulary) {
  bind_weights();
}

void LoadedModel::bind_weights() {
  for (const ManifestTensor& tensor : manifest.tensors) {
    const std::string wanted = tensor.name + " F32" + to_text(tensor.shape);
    const TensorSpec* found = file.find(tensor.name);
    if (found == nullptr) {
      const bool torch = std::any_of(file.specs().begin(), file.specs().end(),
                                     [](const TensorSpec& spec) { return is_torch_weight(spec.name); });
      throw Error(Status::weights,
                  file.path() + ": tensor " + wanted + " expected, " +
                      (torch ? "found a PyTorch model; export it first with: phonograd export --model" : "not found"));
    }
    if (found->dtype != "F32" || found->shape != tensor.shape) {
      throw Error(Status::weights, file.path() + ": tensor " + wanted + " expected, found " + found->name + " " +
                                       found->dtype + to_text(found->shape));
    }
  }
  require_aligned(file);
  if (file.specs().size() != manifest.tensors.size()) {
    throw Error(Status::weights, file.path() + ": " + std::to_string(manifest.tensors.size()) +
                                     " tensors expected, found " + std::to_string(file.specs().size()));
  }
  check_finite();
  writable_ = file.map_copy_on_write();
  for (const ManifestTensor& tensor : manifest.tensors) {
    const TensorSpec& spec = file.at(tensor.name);
    auto* values = reinterpret_cast<float*>(writable_.data() + spec.offset);
    memory[tensor.name] = values;
    parameters.push_back({tensor.name, tensor.shape, values});
    // LwF's teacher is the model as it was sent (paper P, eq. 2): the same pages, never written to.
    const std::string of_teacher = kTeacherPrefix + tensor.name;
    if (teacher == nullptr) memory[of_teacher] = base_of(of_teacher);
  }
  if (teacher == nullptr) return;
  for (const auto& [name, spec] : teacher->tensors()) memory[kTeacherPrefix + name] = base_of(kTeacherPrefix + name);
}

const TensorFile& LoadedModel::file_of(const std::string& input) const {
  return teacher != nullptr && is_of_teacher(input) ? teacher->file() : file;
}

const TensorSpec* LoadedModel::spec_of(const std::string& input) const {
  if (teacher == nullptr || !is_of_teacher(input)) return file.find(tensor_name(input));
  const auto found = teacher->tensors().find(tensor_name(input));
  return found == teacher->tensors().end() ? nullptr : &found->second;
}

float* LoadedModel::base_of(const std::string& input) const {
  return reinterpret_cast<float*>(const_cast<unsigned char*>(file_of(input).data(*spec_of(input))));
}

void LoadedModel::require_unchanged() const {
  file.require_unchanged();
  if (teacher != nullptr) teacher->file().require_unchanged();
  if (writable_.lost()) {
    throw Error(Status::weights, file.path() + ": part of it can't be read; fetch it again and restart");
  }
}

// Every value is read once, before anything runs: a NaN would spoil all others within a step. In pieces, so that the
// file is never resident as a whole.
void LoadedModel::check_finite() {
  constexpr size_t kPiece = size_t{1} << 18;  // elements
  const std::vector<TensorSpec>& specs = file.specs();
  std::vector<char> finite(specs.size(), 1);
  compute.pool.for_each(static_cast<int64_t>(specs.size()), [&](int64_t i, int) {
    const TensorSpec& spec = specs[static_cast<size_t>(i)];
    const auto* values = reinterpret_cast<const float*>(file.data(spec));
    double total = 0;
    for (size_t at = 0; at < spec.elements(); at += kPiece) {
      total += compute.kernels.sum_of_squares(std::min(kPiece, spec.elements() - at), values + at);
      file.release_pages();
    }
    finite[static_cast<size_t>(i)] = std::isfinite(total);
  });
  for (size_t i = 0; i < specs.size(); ++i) {
    if (finite[i]) continue;
    const auto* values = reinterpret_cast<const float*>(file.data(specs[i]));
    const size_t at = first_not_finite(values, specs[i].elements());
    const std::string where = file.path() + ": tensor " + specs[i].name + ": ";
    if (at == specs[i].elements()) throw Error(Status::weights, where + "values whose squares pass the largest float");
    throw Error(Status::weights, where + not_finite(values, at));
  }
  file.release_pages();
  file.require_unchanged();
}

void LoadedModel::check_parameters(const Graph& graph, const BoundParameters& bound) const {
  for (const Value& value : graph.values()) {
    const auto found = bound.find(value.name);
    if (!value.is_input) continue;
    if (found == bound.end()) {
      const bool tensor = tensor_name(value.name).find('.') != std::string::npos;  // no state's name has a dot
      if (teacher == nullptr || !is_of_teacher(value.name) || !tensor) continue;
      throw Error(Status::artifacts, graph.path() + ": input '" + value.name + "' expected of the teacher's tensors, " +
                                         "found none in " + teacher->file().path() + "; export the artifacts again");
    }
    Shape shape = spec_of(value.name)->shape;
    const bool packed = found->second != memory.at(value.name) && found->second != base_of(value.name);
    if (packed) shape[0] = candidates.count();
    if (value.type == DataType::float32 && value.shape == shape) continue;
    throw Error(Status::artifacts, graph.path() + ": input '" + value.name + "' float32 " + to_text(shape) +
                                       " expected, as the model's tensor, found " + to_text(value.shape) +
                                       "; export the artifacts again");
  }
}

std::string LoadedModel::compute_text() const {
  const Bf16Kernels* bf16 = bf16_of(options);
  const std::string products = bf16 == nullptr ? "" : std::string(" with bf16 products (") + bf16->name + ")";
  return std::string("kernels ") + compute.kernels.name + products + ", " + std::to_string(compute.pool.threads()) +
         " threads\n";
}

}  // namespace phonograd
