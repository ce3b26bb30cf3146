#include "base/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

namespace phonograd {
namespace {

// Closes its descriptor at the end of the scope.
struct Descriptor {
  int number;
  ~Descriptor() {
    if (number >= 0) close(number);
  }
};

int open_retrying(const char* path, int flags, mode_t mode = 0) {
  int descriptor;
  do {
    descriptor = open(path, flags | O_CLOEXEC, mode);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

// A write beyond a file size limit raises SIGXFSZ, which kills a process that does not ignore it. While this exists,
// the calling thread only gets the write's error, EFBIG.
#if defined(__APPLE__)
// macOS sends it to the process, not to the thread: a program that sets limits has to ignore it, as Python does.
struct FileSizeSignalHeld {
  FileSizeSignalHeld() {}
};
#else
class FileSizeSignalHeld {
 public:
  FileSizeSignalHeld() {
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~FileSizeSignalHeld() {
    const timespec at_once{};
    while (sigtimedwait(&signal_, nullptr, &at_once) < 0 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  FileSizeSignalHeld(const FileSizeSignalHeld&) = delete;
  FileSizeSignalHeld& operator=(const FileSizeSignalHeld&) = delete;

 private:
  sigset_t signal_, before_;
};
#endif

constexpr const char* kTryLater = "; close other files or apps, and try again";

// 0 or errno.
int sync_retrying(int descriptor) {
#if defined(__APPLE__)
  if (fcntl(descriptor, F_FULLFSYNC) != -1) return 0;  // its fsync leaves the bytes in the disk's own memory
#endif
  while (fsync(descriptor) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

[[noreturn]] void fail(const std::string& name, int error) {
  const Status status = status_of(error, Status::storage);
  const char* next = status == Status::storage ? "; free space or choose another place" : kTryLater;
  throw Error(status, name + ": cannot write: " + reason_of(error) + next);
}

// 0 or errno.
int lock_retrying(int descriptor) {
  while (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

// `write_some(next, bytes)`: as write().
template <typename WriteSome>
void write_all(const std::string& name, const void* data, size_t bytes, WriteSome write_some) {
  const FileSizeSignalHeld held;
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t count = write_some(next, bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail(name, count < 0 ? errno : ENOSPC);
    next += count;
    bytes -= static_cast<size_t>(count);
  }
}

void append_all(int descriptor, const std::string& name, const void* data, size_t bytes) {
  write_all(name, data, bytes, [descriptor](const char* next, size_t left) { return write(descriptor, next, left); });
}

// The folder of a path, with a slash at its end, and the name in it.
std::pair<std::string, std::string> split(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {"./", path};
  return {path.substr(0, slash + 1), path.substr(slash + 1)};
}

constexpr const char* kPartial = ".partial";  // at the end of a temporary file's name

std::string name_of(int descriptor) {
  return "descriptor " + std::to_string(descriptor);
}

constexpr size_t kSuffixDigits = 8;

// Hexadecimal digits that differ between calls, threads and processes. If they collide all the same, O_EXCL makes
// it an error.
std::string unique_suffix() {
  static std::atomic<uint32_t> calls{0};
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const uint32_t mixed = (static_cast<uint32_t>(now.tv_nsec) ^ static_cast<uint32_t>(now.tv_sec) << 20) * 2654435761u ^
                         static_cast<uint32_t>(getpid()) * 40503u ^ calls++ << 24;
  char text[kSuffixDigits + 1];
  std::snprintf(text, sizeof text, "%08x", static_cast<unsigned>(mixed));
  return text;
}

}  // namespace

std::string reason_of(int error) {
  return std::generic_category().message(error);
}

std::string path_of(int descriptor) {
#if defined(__APPLE__)
  struct stat about{};
  char path[PATH_MAX];
  const bool folder = fstat(descriptor, &about) == 0 && S_ISDIR(about.st_mode);
  if (folder && fcntl(descriptor, F_GETPATH, path) != -1) return path;  // nothing can be opened below /dev/fd/N
  return "/dev/fd/" + std::to_string(descriptor);
#else
  return "/proc/self/fd/" + std::to_string(descriptor);
#endif
}

timespec written_at(const struct stat& about) {
#if defined(__APPLE__)
  return about.st_mtimespec;
#else
  return about.st_mtim;
#endif
}

Status status_of(int error, Status otherwise) {
  return error == EMFILE || error == ENFILE || error == ENOMEM ? Status::out_of_memory : otherwise;
}

AtomicFile::AtomicFile(const std::string& path, unsigned mode) : path_(path) {
  std::string name;
  std::tie(folder_, name) = split(path);
  if (name.empty()) fail(path_, EISDIR);
  remove_partials(path_);
  for (bool held = false; !held;) {
    partial_ = folder_ + "." + name + "." + unique_suffix() + kPartial;
    descriptor_ = open_retrying(partial_.c_str(), O_RDWR | O_CREAT | O_EXCL, static_cast<mode_t>(mode));
    if (descriptor_ < 0) fail(path_, errno);  // no destructor runs, so another process's file is not removed
    // Until it is locked, another process may take it for a dead one's and remove it. A file system without locks
    // refuses them to that process too.
    held = lock_retrying(descriptor_) != EWOULDBLOCK && access(partial_.c_str(), F_OK) == 0;
    if (!held) close(descriptor_);
  }
}

AtomicFile::~AtomicFile() {
  if (!partial_.empty()) unlink(partial_.c_str());
  if (descriptor_ >= 0) close(descriptor_);
}

void AtomicFile::write(const void* data, size_t bytes) {
  append_all(descriptor_, path_, data, bytes);
}

void AtomicFile::write_at(size_t at, const void* data, size_t bytes) {
  write_all(path_, data, bytes, [this, &at](const char* next, size_t left) {
    const ssize_t count = pwrite(descriptor_, next, left, static_cast<off_t>(at));
    if (count > 0) at += static_cast<size_t>(count);
    return count;
  });
}

void AtomicFile::read_at(size_t at, size_t bytes, void* out) const {
  char* next = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t count = pread(descriptor_, next, bytes, static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail(path_, count < 0 ? errno : EIO);
    next += count, at += static_cast<size_t>(count), bytes -= static_cast<size_t>(count);
  }
}

void AtomicFile::commit() {
  remove_partials(path_);
  if (const int error = sync_retrying(descriptor_)) fail(path_, error);
  if (std::rename(partial_.c_str(), path_.c_str()) != 0) fail(path_, errno);
  partial_.clear();
  const Descriptor folder{open_retrying(folder_.c_str(), O_RDONLY | O_DIRECTORY)};
  if (folder.number < 0) fail(path_, errno);
  if (const int error = sync_retrying(folder.number)) fail(path_, error);
}

void remove_partials(const std::string& path) {
  const auto [folder, name] = split(path);
  const std::string begin = "." + name + ".", end = kPartial;
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(opendir(folder.c_str()), closedir);
  if (entries == nullptr) return;
  std::vector<std::string> found;
  while (const dirent* entry = readdir(entries.get())) {
    const std::string other = entry->d_name;
    const bool fits = other.size() == begin.size() + kSuffixDigits + end.size() &&
                      other.compare(0, begin.size(), begin) == 0 &&
                      other.compare(other.size() - end.size(), end.size(), end) == 0;
    if (fits && other.find_first_not_of("0123456789abcdef", begin.size()) == begin.size() + kSuffixDigits) {
      found.push_back(folder + other);
    }
  }
  for (const std::string& partial : found) {
    const Descriptor file{open_retrying(partial.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK)};
    if (file.number >= 0 && lock_retrying(file.number) == 0) unlink(partial.c_str());
  }
}

DescriptorFile::DescriptorFile(int descriptor) : descriptor_(descriptor) {
  require_writable(descriptor);
  if (ftruncate(descriptor, 0) != 0 || lseek(descriptor, 0, SEEK_SET) != 0) fail(name_of(descriptor), errno);
}

void DescriptorFile::require_writable(int descriptor) {
  struct stat about{};
  const int flags = fcntl(descriptor, F_GETFL);
  const auto refuse = [descriptor](const char* found) {
    throw Error(Status::usage,
                name_of(descriptor) + ": a regular file that is open for writing expected, found " + found);
  };
  if (flags < 0 || fstat(descriptor, &about) != 0) refuse("none that is open; give another number");
  if (!S_ISREG(about.st_mode)) refuse("a pipe, a device or a folder; give a file");
  if ((flags & O_ACCMODE) == O_RDONLY) refuse("one that is open for reading alone; open it for writing");
}

void DescriptorFile::write(const void* data, size_t bytes) {
  append_all(descriptor_, name_of(descriptor_), data, bytes);
}

void DescriptorFile::commit() {
  if (const int error = sync_retrying(descriptor_)) fail(name_of(descriptor_), error);
}

void write_file(const std::string& path, const void* data, size_t bytes) {
  AtomicFile file(path);
  file.write(data, bytes);
  file.commit();
}

int open_to_read(const std::string& path, Status status) {
  Descriptor file{open_retrying(path.c_str(), O_RDONLY | O_NONBLOCK)};
  struct stat about{};
  if (file.number < 0 || fstat(file.number, &about) != 0) {
    const Status found = status_of(errno, status);
    throw Error(found, path + ": cannot be opened: " + reason_of(errno) + (found == status ? "" : kTryLater));
  }
  if (!S_ISREG(about.st_mode)) {
    throw Error(status,
                path + ": a file expected, found " + (S_ISDIR(about.st_mode) ? "a folder" : "a pipe or a device"));
  }
  return std::exchange(file.number, -1);
}

std::string read_file(const std::string& path, size_t cap, Status status) {
  const Descriptor file{open_to_read(path, status)};
  std::string content;
  char chunk[1 << 14];
  for (;;) {
    const ssize_t count = read(file.number, chunk, std::min(sizeof chunk, cap - content.size() + 1));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw Error(status, path + ": cannot be read: " + reason_of(errno));
    if (count == 0) return content;
    content.append(chunk, static_cast<size_t>(count));
    if (content.size() > cap) {
      throw Error(status, path + ": larger than the limit of " + std::to_string(cap) + " bytes; is it the right file?");
    }
  }
}

}  // namespace phonograd
