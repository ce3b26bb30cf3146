// One process at a time does what it does to a path.
#pragma once

#include <string>

namespace phonograd {

// Whoever makes a second one of a path waits while the first exists. It locks `NAME.lock` beside `path`, which stays; a
// folder that refuses that file refuses what is to be written, too.
class PathLock {
 public:
  explicit PathLock(const std::string& path);
  ~PathLock();
  PathLock(const PathLock&) = delete;
  PathLock& operator=(const PathLock&) = delete;

 private:
  int descriptor_;
};

}  // namespace phonograd
