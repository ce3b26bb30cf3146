// Files that appear whole or not at all, and small files read whole. As device_runtime/base/files.py does it.
#pragma once

#include <cstddef>
#include <string>

#include "base/error.h"

namespace phonograd {

// A file that appears at `path`, whole and on disk, with commit(): until then it is `.NAME.XXXXXXXX.partial` beside it,
// and a destroyed AtomicFile that was not committed leaves nothing. Every method throws Error(storage) "PATH: cannot
// write: REASON; free space or choose another place". Owns its descriptor; one thread at a time.
class AtomicFile {
 public:
  // `mode` as open() takes it: less the process's umask.
  explicit AtomicFile(const std::string& path, unsigned mode = 0666);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t bytes);  // appends all of it
  void commit();                               // fsync, rename, fsync of the folder; once, and nothing after it

 private:
  [[noreturn]] void fail(int error) const;

  std::string path_;
  std::string folder_;
  std::string partial_;  // "" once it is no longer there
  int descriptor_ = -1;
};

// Write a small file atomically. Throws Error(storage).
void write_file(const std::string& path, const void* data, size_t bytes);

// All of a file. Throws Error(status) naming it: it can't be opened or read, or holds more than `cap` bytes.
std::string read_file(const std::string& path, size_t cap, Status status);

// What errno says, in words: "No space left on device".
std::string reason_of(int error);

}  // namespace phonograd
