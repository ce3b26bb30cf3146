#include "engine/teacher.h"

#include <cstring>

#include "base/error.h"

namespace phonograd {
namespace {

bool has_a_row_a_word(const std::string& name) {
  return name.rfind("embedding.", 0) == 0 || name.rfind("decoder.", 0) == 0;
}

}  // namespace

OutputSample candidates_within(const OutputSample& sample, int64_t first, int64_t end) {
  OutputSample within;
  for (size_t i = 0; i < sample.candidates.size(); ++i) {
    if (sample.candidates[i] < first || sample.candidates[i] >= end) continue;
    within.candidates.push_back(sample.candidates[i]);
    within.shifts.push_back(sample.shifts[i]);
  }
  return within;
}

Teacher::Teacher(const std::string& folder, int64_t words, const OutputSample& sample)
    : manifest_(read_manifest(folder)), file_(manifest_.path("weights.safetensors")) {
  const int64_t V = manifest_.vocabulary;
  if (V < words) {
    throw Error(Status::vocabulary, folder + ": a teacher of at least the student's " + std::to_string(words) +
                                        " words expected, found " + std::to_string(V) + "; choose another teacher");
  }
  for (const ManifestTensor& tensor : manifest_.tensors) {
    TensorSpec spec = file_.at(tensor.name);
    if (spec.dtype != "F32" || spec.shape != tensor.shape) {
      throw Error(Status::weights, file_.path() + ": tensor " + tensor.name + " F32" + to_text(tensor.shape) +
                                       " expected, found " + spec.dtype + to_text(spec.shape));
    }
    if (has_a_row_a_word(tensor.name)) {
      spec.bytes = spec.bytes / static_cast<size_t>(V) * static_cast<size_t>(words);
      spec.shape[0] = words;
    }
    tensors_[tensor.name] = spec;
  }
  require_aligned(file_);
  if (!sample.candidates.empty() && sample.candidates.back() >= V) {
    throw Error(Status::usage, "output sample: candidate " + std::to_string(sample.candidates.back()) +
                                   ": expected one of the teacher's " + std::to_string(V) + " words");
  }
  if (V == words) return;
  unknown_ = candidates_within(sample, words, V);
  for (int64_t word = words; sample.candidates.empty() && word < V; ++word) unknown_.candidates.push_back(word);
  unknown_.candidates.insert(unknown_.candidates.begin(), 0);
  unknown_.shifts.insert(unknown_.shifts.begin(), 0);
  unknown_.shifts.resize(unknown_.candidates.size());
}

void Teacher::set_unknown(Program& program, int64_t C) const {
  if (unknown() == 0) return;
  const TensorSpec& matrix = tensors_.at(manifest_.tied ? "embedding.weight" : "decoder.weight");
  const auto of_bias = tensors_.find("decoder.bias");
  const int64_t U = unknown(), H = matrix.shape[1];
  float* rows = program.need("teacher.unknown_rows", DataType::float32, {U, H}).floats();
  float* bias = program.need("teacher.unknown_bias", DataType::float32, {U}).floats();
  for (int64_t i = 0; i < U; ++i) {
    const auto word = static_cast<size_t>(unknown_.candidates[static_cast<size_t>(i)]);
    const size_t row_bytes = static_cast<size_t>(H) * sizeof(float);
    std::memcpy(rows + i * H, file_.data(matrix) + word * row_bytes, row_bytes);
    bias[i] = unknown_.shifts[static_cast<size_t>(i)];
    if (of_bias == tensors_.end()) continue;
    bias[i] += reinterpret_cast<const float*>(file_.data(of_bias->second))[word];
  }
  // <unk> is the first of both.
  *program.need("teacher.unknown_first", DataType::float32, {U, 1}).floats() = 1;
  *program.need("teacher.unknown_raised", DataType::float32, {C, 1}).floats() = -1;
}

}  // namespace phonograd
