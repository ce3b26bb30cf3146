#include "engine/candidates.h"

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "update/deltas.h"

namespace phonograd {

namespace {

constexpr size_t kRowsAtATime = 64;  // a fault maps up to 64 KiB of a file around each of them

[[noreturn]] void refuse(const std::string& what) {
  throw Error(Status::usage, "output sample: " + what);
}

size_t row_elements(const std::vector<int64_t>& shape) {
  size_t elements = 1;
  for (size_t i = 1; i < shape.size(); ++i) elements *= static_cast<size_t>(shape[i]);
  return elements;
}

}  // namespace

Candidates::Candidates(const OutputSample& sample, int64_t vocabulary) : sample_(sample) {
  if (sample.candidates.size() != sample.shifts.size()) {
    refuse(std::to_string(sample.candidates.size()) + " shifts expected, one a candidate, found " +
           std::to_string(sample.shifts.size()));
  }
  if (empty()) return;
  places_.assign(static_cast<size_t>(vocabulary), -1);
  int64_t before = -1;
  for (size_t place = 0; place < sample.candidates.size(); ++place) {
    const int64_t id = sample.candidates[place];
    const float shift = sample.shifts[place];
    if (id <= before || id >= vocabulary) {
      refuse("candidate " + std::to_string(id) + " at place " + std::to_string(place) +
             ": expected ids that rise, from 0 to " + std::to_string(vocabulary - 1));
    }
    if (!std::isfinite(shift) || shift < 0) {
      refuse("shift " + std::to_string(shift) + " at place " + std::to_string(place) +
             ": expected a finite number of at least 0, -log of a chance");
    }
    before = id;
    rows_.push_back(static_cast<uint32_t>(id));
    places_[static_cast<size_t>(id)] = static_cast<int32_t>(place);
  }
}

void Candidates::places(const int64_t* ids, size_t count, bool ignored, int64_t* places) const {
  for (size_t n = 0; n < count; ++n) {
    const int64_t id = ids[n];
    const bool in_vocabulary = id >= 0 && id < static_cast<int64_t>(places_.size());
    places[n] = in_vocabulary ? places_[static_cast<size_t>(id)] : -1;
    if (places[n] >= 0 || (ignored && id == -1)) continue;
    throw Error(Status::training, "output sample: word " + std::to_string(id) + " expected among its " +
                                      std::to_string(sample_.candidates.size()) +
                                      " candidates, not found; draw the sample from the text that is trained on");
  }
}

float* Candidates::gather(const TensorFile& file, const TensorSpec& spec, const std::string& name) {
  const size_t row_bytes = row_elements(spec.shape) * sizeof(float);
  Memory memory(rows_.size() * row_bytes);
  for (size_t i = 0; i < rows_.size(); ++i) {
    std::memcpy(memory.data() + i * row_bytes, file.data(spec) + rows_[i] * row_bytes, row_bytes);
    if (i % kRowsAtATime == 0) file.release_pages();
  }
  file.release_pages();
  return reinterpret_cast<float*>((packed_[name] = std::move(memory)).data());
}

void Candidates::bind(Parameter& parameter) {
  const auto found = packed_.find(parameter.name);
  if (found == packed_.end()) return;
  parameter.packed = reinterpret_cast<float*>(found->second.data());
  parameter.packed_rows = &rows_;
  parameter.changed_rows = &scattered_[parameter.name];
}

void Candidates::scatter(Parameter& parameter, const TensorFile& file) {
  if (parameter.packed == nullptr) return;
  const size_t row = row_elements(parameter.shape);
  std::vector<uint32_t>& rows = scattered_[parameter.name];
  if (rows.empty()) {
    TensorSpec spec = file.at(parameter.name);
    spec.shape = {parameter.shape[0], static_cast<int64_t>(row)};
    rows = moved_rows(file, spec, rows_, parameter.packed);
  } else {
    rows = rows_;
  }
  for (const uint32_t number : rows) {
    const auto place = static_cast<size_t>(places_[number]);
    std::memcpy(parameter.data + number * row, parameter.packed + place * row, row * sizeof(float));
  }
}

void Candidates::unbind(Parameter& parameter) {
  parameter.packed = nullptr;
  parameter.packed_rows = nullptr;
  packed_.erase(parameter.name);
  packed_.erase(kBase + parameter.name);
}

}  // namespace phonograd
