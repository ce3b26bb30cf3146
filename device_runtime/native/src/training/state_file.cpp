#include "training/state_file.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>

#include "base/crc32.h"
#include "base/files.h"
#include "update/deltas.h"

namespace phonograd {
namespace {

constexpr const char* kFormat = "phonograd-training-state";
constexpr const char* kSample = "output_sample";    // a job's entry: the words drawn; version 2 has it, version 1 not
constexpr const char* kSampleSeed = "sample_seed";  // likewise, and never shown
constexpr const char* kSteps = "steps";             // likewise: "1" of a full batch, else "" and not stored
constexpr size_t kChunkBytes = 1 << 18;

size_t elements_of(const std::vector<int64_t>& shape) {
  size_t product = 1;
  for (const int64_t size : shape) product *= static_cast<size_t>(size);
  return product;
}

const char* version_of(const Job& job) {
  const bool sampled = std::any_of(job.begin(), job.end(), [](const auto& entry) { return entry.first == kSample; });
  return sampled ? "2" : "1";
}

// Elements of a row of a parameter that is stored by rows: of its first dimension.
size_t row_of(const Parameter& parameter) {
  return elements_of(parameter.shape) / static_cast<size_t>(parameter.shape[0]);
}

bool stored_by_rows(const StateTensors& tensors, const Parameter& parameter) {
  return parameter.packed != nullptr || parameter.name == tensors.rows_of;
}

// Where the engine has a row that it may change.
float* row_at(const Parameter& parameter, uint32_t number) {
  if (parameter.packed == nullptr) return parameter.data + number * row_of(parameter);
  const auto place = std::lower_bound(parameter.packed_rows->begin(), parameter.packed_rows->end(), number) -
                     parameter.packed_rows->begin();
  return parameter.packed + static_cast<size_t>(place) * row_of(parameter);
}

bool may_change(const Parameter& parameter, uint32_t number) {
  if (parameter.packed == nullptr) return number < static_cast<uint64_t>(parameter.shape[0]);
  return std::binary_search(parameter.packed_rows->begin(), parameter.packed_rows->end(), number);
}

std::vector<uint32_t> changed_rows(const TensorFile& base, const Parameter& parameter) {
  TensorSpec spec = base.at(parameter.name);
  if (spec.dtype != "F32" || spec.shape != parameter.shape) {
    throw Error(Status::weights, base.path() + ": tensor " + parameter.name + " has another shape than the model's");
  }
  spec.shape = {spec.shape[0], static_cast<int64_t>(row_of(parameter))};
  if (parameter.packed != nullptr) return moved_rows(base, spec, *parameter.packed_rows, parameter.packed);
  return moved_rows(base, spec, Trained{parameter.data}, spec.elements());
}

// By parameter: numbers of the rows stored; none of one that is stored whole.
using StoredRows = std::vector<std::vector<uint32_t>>;

// Names, dtypes and shapes of the file's tensors but for the checksum, in order, when `steps` steps are done.
std::vector<TensorSpec> layout(const StateTensors& tensors, int64_t steps, const StoredRows& rows) {
  std::vector<TensorSpec> entries = {{"losses", "F64", {steps}}, {"step_seconds", "F64", {steps}}};
  for (size_t i = 0; i < tensors.parameters.size(); ++i) {
    const Parameter& parameter = tensors.parameters[i];
    if (stored_by_rows(tensors, parameter)) {
      const auto count = static_cast<int64_t>(rows[i].size());
      entries.push_back({parameter.name + ".rows", "U32", {count}});
      entries.push_back({parameter.name + ".values", "F32", {count, static_cast<int64_t>(row_of(parameter))}});
    } else {
      entries.push_back({parameter.name, "F32", parameter.shape});
    }
  }
  for (size_t i = 0; i < tensors.recurrent.size(); ++i) {
    entries.push_back({"recurrent." + std::to_string(i), "F32", tensors.recurrent[i].shape});
  }
  return entries;
}

// Appends to a file through a small buffer, with the CRC of all that went through.
class SummedWriter {
 public:
  explicit SummedWriter(AtomicFile& file) : file_(file) { buffer_.reserve(kChunkBytes); }

  void write(const void* data, size_t bytes) {
    crc_ = crc32(crc_, data, bytes);
    if (buffer_.size() + bytes > kChunkBytes) flush();
    if (bytes >= kChunkBytes) {
      file_.write(data, bytes);
    } else {
      buffer_.append(static_cast<const char*>(data), bytes);
    }
  }
  void flush() {
    file_.write(buffer_.data(), buffer_.size());
    buffer_.clear();
  }
  uint32_t crc() const { return crc_; }

 private:
  AtomicFile& file_;
  std::string buffer_;
  uint32_t crc_ = 0;
};

// Reads a state after its header was checked; every error names the file and the next step.
class Reader {
 public:
  explicit Reader(const std::string& path) : file_(path, Status::state) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(Status::state, file_.path() + ": " + what + "; discard it with `restart`");
  }

  const std::string& metadata(const std::string& name) const {
    const auto found = file_.metadata().find(name);
    if (found == file_.metadata().end()) fail("not a training state: metadata has no " + name);
    return found->second;
  }

  void check_sum() const {
    if (const std::string fault = checksum_fault(file_); !fault.empty()) fail(fault);
  }

  void check_job(const Job& job) const {
    std::string differing;
    for (const auto& [name, value] : job) {
      const std::string& found = name == kSteps ? steps() : metadata(name);
      if (found == value) continue;
      differing += (differing.empty() ? "" : ", ") + name;
      if (name != kSampleSeed) differing += " (" + shorten(value) + " expected, found " + shorten(found) + ")";
    }
    if (differing.empty()) return;
    throw Error(Status::state, file_.path() + ": belongs to another job, which differs in " + differing +
                                   "; resume with the same inputs and options, or discard it with `restart`");
  }

  // "1" for a full batch, else "".
  std::string steps() const {
    const auto found = file_.metadata().find(kSteps);
    return found == file_.metadata().end() ? "" : found->second;
  }

  // Version 1 is of the full softmax, version 2 of an output sample.
  void check_version(const Job& job) const {
    const std::string& version = metadata("version");
    if (version != "1" && version != "2") fail("training state of version " + version + ", expected 1 or 2");
    if (version == version_of(job)) return;
    const bool sampled = version == "2";
    throw Error(Status::state, file_.path() + ": one of an epoch " + (sampled ? "without" : "with") +
                                   " an output sample expected, found one " + (sampled ? "with" : "without") +
                                   "; go on with the same options, or discard it with `restart`");
  }

  int64_t count(const std::string& name) const {
    const std::string& text = metadata(name);
    if (text.empty() || text.size() > 15 || text.find_first_not_of("0123456789") != std::string::npos) {
      fail("metadata " + name + " is not a count");
    }
    return std::stoll(text);
  }

  // Hold the file's tensors to those expected, one by one and in order.
  void check_layout(const std::vector<TensorSpec>& entries) const {
    if (file_.specs().size() != entries.size() + 1) fail("its tensors are not those of this model");
    for (size_t i = 0; i < entries.size(); ++i) {
      const TensorSpec& found = file_.specs()[i];
      const TensorSpec& wanted = entries[i];
      if (found.name != wanted.name || found.dtype != wanted.dtype || found.shape != wanted.shape) {
        fail("tensor " + wanted.name + " expected, found " + found.name + " or another shape of it");
      }
    }
  }

  // Numbers of a parameter's rows, as many as the file has.
  void read_rows(const Parameter& parameter, std::vector<uint32_t>& rows) const {
    read(rows.data(), file_.at(parameter.name + ".rows"));
    for (size_t i = 0; i < rows.size(); ++i) {
      const bool rising = i == 0 || rows[i] > rows[i - 1];
      if (!rising || !may_change(parameter, rows[i])) {
        fail("damaged: " + parameter.name + ".rows are not rising row numbers");
      }
    }
  }

  const TensorFile& file() const { return file_; }
  // By position: a mapping would leave as many bytes resident as the model has.
  void read(void* out, const TensorSpec& spec) const { file_.read(spec.offset, spec.bytes, out); }

 private:
  static std::string shorten(const std::string& value) {
    if (value.empty()) return "none";
    return value.size() > 20 ? value.substr(0, 12) + "..." : value;
  }

  TensorFile file_;
};

}  // namespace

size_t write_state_file(const std::string& path, const Job& job, const Progress& progress, const StateTensors& tensors,
                        const TensorFile& base, const std::function<void()>& check) {
  StoredRows rows;
  for (const Parameter& parameter : tensors.parameters) {
    rows.push_back(stored_by_rows(tensors, parameter) ? changed_rows(base, parameter) : std::vector<uint32_t>());
  }
  const auto steps = static_cast<int64_t>(progress.losses.size());
  std::vector<TensorSpec> entries = layout(tensors, steps, rows);
  entries.push_back({kChecksum, "U32", {1}});
  std::map<std::string, std::string> metadata = {{"format", kFormat}, {"version", version_of(job)}};
  std::copy_if(job.begin(), job.end(), std::inserter(metadata, metadata.end()),
               [](const auto& entry) { return !entry.second.empty(); });
  metadata.emplace("step", std::to_string(steps));
  metadata.emplace("dropout_steps", std::to_string(progress.dropout_steps));

  AtomicFile file(path, 0600);
  SummedWriter out(file);
  const std::string head = tensor_file_header(entries, metadata);
  out.write(head.data(), head.size());
  out.write(progress.losses.data(), progress.losses.size() * sizeof(double));
  out.write(progress.step_seconds.data(), progress.step_seconds.size() * sizeof(double));
  for (size_t i = 0; i < tensors.parameters.size(); ++i) {
    const Parameter& parameter = tensors.parameters[i];
    if (!stored_by_rows(tensors, parameter)) {
      out.write(parameter.data, elements_of(parameter.shape) * sizeof(float));
      continue;
    }
    out.write(rows[i].data(), rows[i].size() * sizeof(uint32_t));
    for (const uint32_t number : rows[i]) out.write(row_at(parameter, number), row_of(parameter) * sizeof(float));
  }
  for (const RecurrentState& state : tensors.recurrent) {
    out.write(state.data, elements_of(state.shape) * sizeof(float));
  }
  const uint32_t crc = out.crc();
  out.write(&crc, sizeof crc);
  out.flush();
  check();
  file.commit();
  return entries.back().offset + entries.back().bytes;
}

Progress read_state_file(const std::string& path, const Job& job, const StateTensors& tensors) {
  const Reader in(path);
  if (in.metadata("format") != kFormat) in.fail("not a training state");
  in.check_version(job);
  in.check_sum();
  in.check_job(job);
  StoredRows rows;
  for (const Parameter& parameter : tensors.parameters) {
    const TensorSpec* stored = stored_by_rows(tensors, parameter) ? in.file().find(parameter.name + ".rows") : nullptr;
    rows.emplace_back(stored == nullptr ? 0 : stored->elements());
  }
  const int64_t steps = in.count("step");
  in.check_layout(layout(tensors, steps, rows));

  // Everything is checked before the engine's memory changes. The sizes read are those of tensors that are in the file.
  Progress progress;
  progress.losses.resize(static_cast<size_t>(steps));
  progress.step_seconds.resize(static_cast<size_t>(steps));
  progress.dropout_steps = static_cast<uint64_t>(in.count("dropout_steps"));
  in.read(progress.losses.data(), in.file().at("losses"));
  in.read(progress.step_seconds.data(), in.file().at("step_seconds"));
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].empty()) in.read_rows(tensors.parameters[i], rows[i]);
  }

  for (size_t i = 0; i < rows.size(); ++i) {
    const Parameter& parameter = tensors.parameters[i];
    if (!stored_by_rows(tensors, parameter)) {
      in.read(parameter.data, in.file().at(parameter.name));
      continue;
    }
    size_t offset = in.file().at(parameter.name + ".values").offset;
    for (const uint32_t number : rows[i]) {
      in.file().read(offset, row_of(parameter) * sizeof(float), row_at(parameter, number));
      offset += row_of(parameter) * sizeof(float);
    }
  }
  for (size_t i = 0; i < tensors.recurrent.size(); ++i) {
    in.read(tensors.recurrent[i].data, in.file().at("recurrent." + std::to_string(i)));
  }
  return progress;
}

}  // namespace phonograd
