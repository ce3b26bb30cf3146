// safetensors files: mapped for reading, written atomically. FORMAT.md, "Tensor files"; the rules are those of
// device_runtime/formats/tensor_file.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/mapping.h"

namespace phonograd {

constexpr size_t kMaxDimensions = 8;  // of a tensor, in every format

struct TensorSpec {
  std::string name;
  std::string dtype;  // "F32", "U32", "I64", ...
  std::vector<int64_t> shape;
  size_t offset = 0;  // of its first byte, from the beginning of the file
  size_t bytes = 0;

  size_t elements() const;  // product of shape; 1 for a scalar
};

// Read-only view of one file, mapped whole; pages load as they are touched. Not copyable. Const methods are
// thread-safe.
class TensorFile {
 public:
  // Maps and checks the file. Throws Error(status), for instance weights or state, that names the file and the fault:
  // it is unreadable, truncated or has trailing bytes, its header is above 1 MiB or invalid JSON, a name is invalid,
  // tensors overlap or leave a gap. `start`: its first byte in a file where other tensor files may follow; none: it is
  // all of that file. `name`: of the file in messages; empty: its path.
  explicit TensorFile(const std::string& path, Status status = Status::weights,
                      std::optional<size_t> start = std::nullopt, const std::string& name = "");
  ~TensorFile();
  TensorFile(const TensorFile&) = delete;
  TensorFile& operator=(const TensorFile&) = delete;

  const std::string& path() const { return path_; }
  size_t file_bytes() const { return size_; }
  size_t begin() const { return begin_; }                          // the place in the file of its first byte
  size_t end() const { return end_; }                              // the place in the file after its last byte
  const std::vector<TensorSpec>& specs() const { return specs_; }  // in the order of the data
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const TensorSpec* find(const std::string& name) const;  // nullptr if it is not there
  const TensorSpec& at(const std::string& name) const;    // throws Error(status) naming the tensor
  // A tensor's bytes in the mapping. Files written by phonograd align them to 4 bytes, other files may not. If another
  // process truncates the file they read as zeros, so call require_unchanged() before using any result.
  const unsigned char* data(const TensorSpec& spec) const { return map_.data() + spec.offset; }
  // Copies bytes from a place in the file without touching the mapping. Throws Error(status) if they can't be read.
  void read(size_t at, size_t bytes, void* out) const;

  // The same to another file, in pieces.
  void copy(size_t at, size_t bytes, OutputFile& to) const;

  // Hex SHA-256 of the open file, even if another file has its path by now. Throws Error(status).
  std::string sha256() const;
  // Throws Error(status) if the open file was written to or truncated since it was opened, or can't be read. A new file
  // at its path does not count.
  void require_unchanged() const;

  // Release the mapped pages from this process's memory; the next read loads them from the file again.
  void release_pages() const;
  void release_pages(const TensorSpec& spec) const;  // of one tensor

  // A second mapping of the file, private and writable: changed pages are copied, the file never changes.
  Mapping map_copy_on_write() const;

 private:
  Mapping mapped(bool writable) const;

  std::string path_;
  Status status_;
  int descriptor_ = -1;  // for later mappings: the path may name another file by now
  Mapping map_;
  size_t size_ = 0, begin_ = 0, end_ = 0;
  timespec written_{};  // modification time when it was opened
  std::vector<TensorSpec> specs_;
  std::map<std::string, std::string> metadata_;
};

// "NAME DTYPE[SIZES]", for messages.
std::string describe(const std::string& name, const std::string& dtype, const std::vector<int64_t>& shape);

// Throws Error(weights) unless each tensor begins at a multiple of 4 bytes, so that it can be used as floats in place.
// Our writer and the safetensors library pad their headers to that; others may not.
void require_aligned(const TensorFile& file);

// One tensor to be written; `data` stays the caller's and must hold product(shape) elements of dtype. `rows`, of a
// trained tensor: numbers, rising, of the rows (of the last dimension) that alone may differ from the file's that
// training started from; nullptr: all may.
struct TensorOut {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  const void* data = nullptr;
  const std::vector<uint32_t>* rows = nullptr;
};

// The start of a tensor file: 8 bytes of length, then the header of these tensors, in order. Needs their name, dtype
// and shape; sets their offset and bytes. Throws Error(bug) for a tensor that no file can hold.
std::string tensor_file_header(std::vector<TensorSpec>& tensors, const std::map<std::string, std::string>& metadata);

// Takes a tensor's bytes, in order and in pieces of any size.
using Sink = std::function<void(const void* data, size_t bytes)>;

// Write a tensor file, its data as a stream: `produce` is called for each tensor in turn. `checksum`: of all of it, as
// one more tensor at its end. Does not commit. Returns the size in bytes. Throws Error(storage) and what `produce`
// throws.
size_t stream_tensor_file(OutputFile& file, std::vector<TensorSpec> tensors,
                          const std::map<std::string, std::string>& metadata, bool checksum,
                          const std::function<void(const TensorSpec& tensor, const Sink& sink)>& produce);

// Write a tensor file. Its bytes equal those that save_tensors in device_runtime/formats/tensor_file.py
// writes for the same tensors and metadata. `check` is called after the last write and before the commit. `checksum`:
// of all of it, as one more tensor at its end. Returns the size in bytes. Throws Error(storage) and what `check`
// throws.
size_t write_tensor_file(OutputFile& file, const std::vector<TensorOut>& tensors,
                         const std::map<std::string, std::string>& metadata = {},
                         const std::function<void()>& check = {}, bool checksum = false);

// The size in bytes of the file that write_tensor_file would write.
size_t tensor_file_bytes(const std::vector<TensorOut>& tensors, const std::map<std::string, std::string>& metadata,
                         bool checksum = false);

// U32[1], the last tensor of a file that has one: CRC-32 of all bytes before it.
constexpr const char* kChecksum = "checksum";

// What is wrong with a file that ends with its checksum; "" if nothing is. Reads all of it. Throws Error(the file's
// status) if it can't be read.
std::string checksum_fault(const TensorFile& file);

}  // namespace phonograd
