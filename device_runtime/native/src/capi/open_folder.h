// A folder that a caller gives by its path or by a descriptor.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "capi/border.h"

namespace phonograd {

// Owns a duplicate of the descriptor, through which path() stays the folder's, whatever it is renamed to (on macOS it
// does not). Movable.
class OpenFolder {
 public:
  explicit OpenFolder(const char* path) : path_(path) {}
  // Throws Error: usage if it is not open; out_of_memory if no further one can be.
  explicit OpenFolder(int descriptor) : descriptor_(fcntl(descriptor, F_DUPFD_CLOEXEC, 3)) {
    if (descriptor_ < 0) {
      throw Error(status_of(errno, Status::usage), "folder: descriptor " + std::to_string(descriptor) + ": " +
                                                       reason_of(errno) + "; give one of an open folder");
    }
    path_ = path_of(descriptor_);
  }
  ~OpenFolder() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  OpenFolder(OpenFolder&& other) noexcept
      : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}
  OpenFolder& operator=(OpenFolder&&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int descriptor_ = -1;
};

// The folder that a caller gives by its path or by a descriptor; 0 stands for no descriptor. Throws Error(usage).
inline OpenFolder folder_of(const char* path, int32_t descriptor) {
  border::require(path != nullptr || descriptor != 0, "folder: NULL; expected a path, or a descriptor");
  border::require(path == nullptr || descriptor == 0, "`folder` and `folder_descriptor` exclude each other");
  return path != nullptr ? OpenFolder(path) : OpenFolder(descriptor);
}

}  // namespace phonograd
