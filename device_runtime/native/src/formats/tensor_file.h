// safetensors files: mapped for reading, written atomically. The rules are FORMAT.md's, "Tensor files", the same as
// device_runtime/formats/tensor_file.py's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/mapping.h"

namespace phonograd {

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
  // Maps and checks the file. `status` is the status of the errors thrown (weights, update or bug: state), which name
  // the file and what is wrong: unreadable, truncated, header above 1 MiB, hostile JSON, names, gaps, overlaps,
  // trailing bytes.
  explicit TensorFile(const std::string& path, Status status = Status::weights);
  ~TensorFile();
  TensorFile(const TensorFile&) = delete;
  TensorFile& operator=(const TensorFile&) = delete;

  const std::string& path() const { return path_; }
  size_t file_bytes() const { return size_; }
  const std::vector<TensorSpec>& specs() const { return specs_; }  // in the order of the data
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const TensorSpec* find(const std::string& name) const;  // nullptr if it is not there
  const TensorSpec& at(const std::string& name) const;    // throws Error(status) naming the tensor
  // A tensor's bytes. They begin where the file has them: files of ours at a multiple of 4, others perhaps at any byte.
  // Where another process cut the file short they are 0: what was made from them stands only if require_unchanged()
  // passes afterwards.
  const unsigned char* data(const TensorSpec& spec) const { return map_.data() + spec.offset; }

  // Hex SHA-256 of the file that is open, whatever stands at its path by now. Throws Error(status).
  std::string sha256() const;
  // Throws Error(status) if the file that is open was written to or cut short since it was opened, or can't be read. A
  // new file that took its path is no change.
  void require_unchanged() const;

  // Tell the system that the mapped pages are not needed for now: they leave this process's memory and come back from
  // the file when they are read.
  void release_pages() const;

  // A second mapping of the file, private and writable: changed pages are copied, the file never changes.
  Mapping map_copy_on_write() const;

 private:
  Mapping mapped(bool writable) const;

  std::string path_;
  Status status_;
  int descriptor_ = -1;  // for later mappings: the path may name another file by then
  Mapping map_;
  size_t size_ = 0;
  timespec written_{};  // when it was, as it was opened
  std::vector<TensorSpec> specs_;
  std::map<std::string, std::string> metadata_;
};

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

// What a tensor file begins with: 8 bytes of length and the header of these tensors, one after the other, which name,
// dtype and shape must tell; gives them offset and bytes. Throws Error(bug) for a tensor that no file can hold.
std::string tensor_file_header(std::vector<TensorSpec>& tensors, const std::map<std::string, std::string>& metadata);

// Write a tensor file at `path`: temporary name beside it, fsync, rename, fsync of the folder. The bytes are those that
// device_runtime/formats/tensor_file.py's save_tensors writes for the same tensors and metadata. `check` is called when
// all is written, before the file appears. Returns the bytes written. Throws Error(storage) and what `check` throws:
// the old file, if any, is untouched and no temporary file is left.
size_t write_tensor_file(const std::string& path, const std::vector<TensorOut>& tensors,
                         const std::map<std::string, std::string>& metadata = {},
                         const std::function<void()>& check = {});

// The bytes that write_tensor_file would write.
size_t tensor_file_bytes(const std::vector<TensorOut>& tensors, const std::map<std::string, std::string>& metadata);

}  // namespace phonograd
