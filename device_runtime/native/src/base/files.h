// Atomic file writes, and reading small files whole. The rules are those of device_runtime/base/files.py.
#pragma once

#include <sys/stat.h>
#include <time.h>

#include <cstddef>
#include <string>

#include "base/error.h"

namespace phonograd {

// A file that is written from its beginning to its end. Every method throws Error(storage) "NAME: cannot write: REASON;
// free space or choose another place". One thread at a time.
class OutputFile {
 public:
  virtual ~OutputFile() = default;
  virtual void write(const void* data, size_t bytes) = 0;  // appends all bytes
  virtual void commit() = 0;                               // makes it durable; call it once, and last
};

// Writes to `.NAME.XXXXXXXX.partial` beside `path`; commit() syncs it and renames it to `path`. Without commit() the
// destructor removes it. It holds a lock on that file meanwhile; both ends of the work remove_partials(). Owns its
// descriptor.
class AtomicFile final : public OutputFile {
 public:
  // `mode` as for open(): the process's umask applies.
  explicit AtomicFile(const std::string& path, unsigned mode = 0666);
  ~AtomicFile() override;
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t bytes) override;
  // Write over bytes that were written before, or read them back.
  void write_at(size_t at, const void* data, size_t bytes);
  void read_at(size_t at, size_t bytes, void* out) const;
  int descriptor() const { return descriptor_; }
  void commit() override;  // fsync, rename, fsync of the folder

 private:
  std::string path_;
  std::string folder_;
  std::string partial_;  // "" after the rename
  int descriptor_ = -1;
};

// Remove what processes that were killed left of files that they wrote to `path` by AtomicFile; what a living one
// writes is locked and stays. Where the folder can't be read, so does the rest.
void remove_partials(const std::string& path);

// Replaces the content of a regular file that the caller has opened for writing. After a failure it holds a part. The
// descriptor stays the caller's.
class DescriptorFile final : public OutputFile {
 public:
  explicit DescriptorFile(int descriptor);
  // Throws Error(usage) unless the descriptor is that of a regular file, open for writing.
  static void require_writable(int descriptor);

  void write(const void* data, size_t bytes) override;
  void commit() override;  // fsync

 private:
  int descriptor_;
};

// Write a small file atomically. Throws Error(storage).
void write_file(const std::string& path, const void* data, size_t bytes);

// A descriptor of a regular file, which becomes the caller's. A pipe is refused, not waited for. Throws Error(status),
// or what status_of() has in its place.
int open_to_read(const std::string& path, Status status);

// Read a whole file. Throws what open_to_read throws, and Error(status) if it can't be read or holds more than `cap`
// bytes.
std::string read_file(const std::string& path, size_t cap, Status status);

// A path that opens what a descriptor has open, also after it was renamed; of a folder on macOS, its path now.
std::string path_of(int descriptor);

// When a file was written last.
timespec written_at(const struct stat& about);

// The status for an errno value: out_of_memory where the system lacks memory or file descriptors, which may pass; else
// `otherwise`.
Status status_of(int error, Status otherwise);

// The message of an errno value, such as "No space left on device".
std::string reason_of(int error);

}  // namespace phonograd
