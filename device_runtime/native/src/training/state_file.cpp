#include "training/state_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>

#include "base/crc32.h"
#include "base/files.h"
#include "update/deltas.h"

namespace phonograd {
namespace {

constexpr const char* kFormat = "phonograd-training-state";
constexpr const char* kVersion = "1";
constexpr const char* kChecksum = "checksum";  // U32[1], the last tensor: CRC-32 of all bytes of the file before it
constexpr size_t kChunkBytes = 1 << 18;

size_t elements_of(const std::vector<int64_t>& shape) {
  size_t product = 1;
  for (const int64_t size : shape) product *= static_cast<size_t>(size);
  return product;
}

size_t row_of(const Parameter& parameter) {
  return parameter.shape.empty() ? 1 : static_cast<size_t>(parameter.shape.back());
}

std::vector<uint32_t> changed_rows(const TensorFile& base, const Parameter& parameter) {
  const TensorSpec& spec = base.at(parameter.name);
  if (spec.dtype != "F32" || spec.shape != parameter.shape) {
    throw Error(Status::weights, base.path() + ": tensor " + parameter.name + " has another shape than the model's");
  }
  return moved_rows(base, spec, parameter.data, spec.elements());
}

// Names, dtypes and shapes of the file's tensors but for the checksum, in order, when `steps` steps are done and `rows`
// rows of the embedding stored.
std::vector<TensorSpec> layout(const StateTensors& tensors, int64_t steps, int64_t rows) {
  std::vector<TensorSpec> entries = {{"losses", "F64", {steps}}, {"step_seconds", "F64", {steps}}};
  for (const Parameter& parameter : tensors.parameters) {
    if (parameter.name == tensors.rows_of) {
      entries.push_back({parameter.name + ".rows", "U32", {rows}});
      entries.push_back({parameter.name + ".values", "F32", {rows, static_cast<int64_t>(row_of(parameter))}});
    } else {
      entries.push_back({parameter.name, "F32", parameter.shape});
    }
  }
  for (size_t i = 0; i < tensors.recurrent.size(); ++i) {
    entries.push_back({"recurrent." + std::to_string(i), "F32", tensors.recurrent[i].shape});
  }
  return entries;
}

const Parameter* rows_parameter(const StateTensors& tensors) {
  for (const Parameter& parameter : tensors.parameters) {
    if (parameter.name == tensors.rows_of) return &parameter;
  }
  return nullptr;
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

// Reads a state after its header was checked; every failure names the file and what to do.
class Reader {
 public:
  explicit Reader(const std::string& path)
      : file_(path, Status::state), descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (descriptor_ < 0) throw Error(Status::state, path + ": cannot be opened: " + reason_of(errno));
  }
  ~Reader() { close(descriptor_); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(Status::state, file_.path() + ": " + what + "; discard it with `restart`");
  }

  const std::string& metadata(const std::string& name) const {
    const auto found = file_.metadata().find(name);
    if (found == file_.metadata().end()) fail("not a training state: metadata has no " + name);
    return found->second;
  }

  void check_sum() const {
    const TensorSpec* last = file_.specs().empty() ? nullptr : &file_.specs().back();
    if (last == nullptr || last->name != kChecksum || last->dtype != "U32" || last->elements() != 1) {
      fail("damaged: its last tensor is not the checksum");
    }
    std::unique_ptr<char[]> chunk(new char[kChunkBytes]);
    uint32_t crc = 0;
    for (size_t at = 0; at < last->offset; at += kChunkBytes) {
      const size_t bytes = std::min(kChunkBytes, last->offset - at);
      read(chunk.get(), bytes, at);
      crc = crc32(crc, chunk.get(), bytes);
    }
    uint32_t stored = 0;
    read(&stored, sizeof stored, last->offset);
    if (crc != stored) fail("damaged: its checksum does not fit its bytes");
  }

  void check_job(const Job& job) const {
    std::string differing;
    for (const auto& [name, value] : job) {
      const std::string& found = metadata(name);
      if (found == value) continue;
      differing +=
          (differing.empty() ? "" : ", ") + name + " (" + shown(value) + " expected, found " + shown(found) + ")";
    }
    if (differing.empty()) return;
    throw Error(Status::state, file_.path() + ": the state of another job, which differs in " + differing +
                                   "; go on with the same inputs and options, or discard it with `restart`");
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

  const TensorFile& file() const { return file_; }
  // By position: what a mapping would leave resident is as large as the model.
  void read(void* out, size_t bytes, size_t offset) const {
    auto* next = static_cast<char*>(out);
    while (bytes > 0) {
      const ssize_t count = pread(descriptor_, next, bytes, static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) fail("cannot be read: " + (count < 0 ? reason_of(errno) : "it ends early"));
      next += count;
      offset += static_cast<size_t>(count);
      bytes -= static_cast<size_t>(count);
    }
  }
  void read(void* out, const TensorSpec& spec) const { read(out, spec.bytes, spec.offset); }

 private:
  static std::string shown(const std::string& value) { return value.size() > 20 ? value.substr(0, 12) + "..." : value; }

  TensorFile file_;
  int descriptor_;
};

}  // namespace

size_t write_state_file(const std::string& path, const Job& job, const Progress& progress, const StateTensors& tensors,
                        const TensorFile& base, const std::function<void()>& check) {
  const Parameter* embedding = rows_parameter(tensors);
  const std::vector<uint32_t> rows = embedding == nullptr ? std::vector<uint32_t>() : changed_rows(base, *embedding);
  const auto steps = static_cast<int64_t>(progress.losses.size());
  std::vector<TensorSpec> entries = layout(tensors, steps, static_cast<int64_t>(rows.size()));
  entries.push_back({kChecksum, "U32", {1}});
  std::map<std::string, std::string> metadata = {{"format", kFormat}, {"version", kVersion}};
  metadata.insert(job.begin(), job.end());
  metadata.emplace("step", std::to_string(steps));
  metadata.emplace("dropout_steps", std::to_string(progress.dropout_steps));

  AtomicFile file(path, 0600);
  SummedWriter out(file);
  const std::string head = tensor_file_header(entries, metadata);
  out.write(head.data(), head.size());
  out.write(progress.losses.data(), progress.losses.size() * sizeof(double));
  out.write(progress.step_seconds.data(), progress.step_seconds.size() * sizeof(double));
  for (const Parameter& parameter : tensors.parameters) {
    if (&parameter != embedding) {
      out.write(parameter.data, elements_of(parameter.shape) * sizeof(float));
      continue;
    }
    const size_t row = row_of(parameter);
    out.write(rows.data(), rows.size() * sizeof(uint32_t));
    for (const uint32_t number : rows) out.write(parameter.data + number * row, row * sizeof(float));
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
  if (in.metadata("version") != kVersion) {
    in.fail("training state of version " + in.metadata("version") + ", expected " + kVersion);
  }
  in.check_sum();
  in.check_job(job);
  const Parameter* embedding = rows_parameter(tensors);
  const TensorSpec* rows_spec = embedding == nullptr ? nullptr : in.file().find(embedding->name + ".rows");
  const size_t stored = rows_spec == nullptr ? 0 : rows_spec->elements();
  const int64_t steps = in.count("step");
  const std::vector<TensorSpec> entries = layout(tensors, steps, static_cast<int64_t>(stored));
  in.check_layout(entries);

  // Everything is checked before the engine's memory changes. The sizes read are those of tensors that are in the file.
  Progress progress;
  progress.losses.resize(static_cast<size_t>(steps));
  progress.step_seconds.resize(static_cast<size_t>(steps));
  progress.dropout_steps = static_cast<uint64_t>(in.count("dropout_steps"));
  in.read(progress.losses.data(), in.file().at("losses"));
  in.read(progress.step_seconds.data(), in.file().at("step_seconds"));
  std::vector<uint32_t> rows(stored);
  if (rows_spec != nullptr) in.read(rows.data(), *rows_spec);
  for (size_t i = 0; i < rows.size(); ++i) {
    const bool rising = i == 0 || rows[i] > rows[i - 1];
    if (!rising || rows[i] >= elements_of(embedding->shape) / row_of(*embedding)) {
      in.fail("damaged: " + embedding->name + ".rows are not rising row numbers");
    }
  }

  for (const Parameter& parameter : tensors.parameters) {
    if (&parameter != embedding) {
      in.read(parameter.data, in.file().at(parameter.name));
      continue;
    }
    const size_t row_bytes = row_of(parameter) * sizeof(float);
    const size_t values = in.file().at(parameter.name + ".values").offset;
    for (size_t i = 0; i < rows.size(); ++i) {
      in.read(parameter.data + rows[i] * row_of(parameter), row_bytes, values + i * row_bytes);
    }
  }
  for (size_t i = 0; i < tensors.recurrent.size(); ++i) {
    in.read(tensors.recurrent[i].data, in.file().at("recurrent." + std::to_string(i)));
  }
  return progress;
}

}  // namespace phonograd
