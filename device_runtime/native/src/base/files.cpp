#include "base/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
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

// 0 or errno.
int sync_retrying(int descriptor) {
  while (fsync(descriptor) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

[[noreturn]] void fail(const std::string& name, int error) {
  throw Error(Status::storage, name + ": cannot write: " + reason_of(error) + "; free space or choose another place");
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

AtomicFile::AtomicFile(const std::string& path, unsigned mode) : path_(path) {
  std::string name;
  std::tie(folder_, name) = split(path);
  if (name.empty()) fail(path_, EISDIR);
  partial_ = folder_ + "." + name + "." + unique_suffix() + kPartial;
  descriptor_ = open_retrying(partial_.c_str(), O_RDWR | O_CREAT | O_EXCL, static_cast<mode_t>(mode));
  if (descriptor_ < 0) fail(path_, errno);  // no destructor runs, so another process's file is not removed
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) close(descriptor_);
  if (!partial_.empty()) unlink(partial_.c_str());
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
  if (const int error = sync_retrying(descriptor_)) fail(path_, error);
  const int descriptor = descriptor_;
  descriptor_ = -1;
  // Linux frees the descriptor whatever close returns. EINTR is no failure: the data is already synced.
  if (close(descriptor) != 0 && errno != EINTR) fail(path_, errno);
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
  if (entries == nullptr) {
    throw Error(Status::storage,
                folder + ": cannot be read: " + reason_of(errno) + "; free space or choose another place");
  }
  std::vector<std::string> stale;
  while (const dirent* entry = readdir(entries.get())) {
    const std::string found = entry->d_name;
    const bool fits = found.size() == begin.size() + kSuffixDigits + end.size() &&
                      found.compare(0, begin.size(), begin) == 0 &&
                      found.compare(found.size() - end.size(), end.size(), end) == 0;
    if (fits && found.find_first_not_of("0123456789abcdef", begin.size()) == begin.size() + kSuffixDigits) {
      stale.push_back(folder + found);
    }
  }
  for (const std::string& partial : stale) unlink(partial.c_str());
}

DescriptorFile::DescriptorFile(int descriptor) : descriptor_(descriptor) {
  require_writable(descriptor);
  if (ftruncate(descriptor, 0) != 0 || lseek(descriptor, 0, SEEK_SET) != 0) fail(name_of(descriptor), errno);
}

void DescriptorFile::require_writable(int descriptor) {
  struct stat about{};
  const int flags = fcntl(descriptor, F_GETFL);
  if (flags < 0 || fstat(descriptor, &about) != 0) fail(name_of(descriptor), errno);
  if (!S_ISREG(about.st_mode)) fail(name_of(descriptor), ESPIPE);
  if ((flags & O_ACCMODE) == O_RDONLY) fail(name_of(descriptor), EBADF);
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

std::string read_file(const std::string& path, size_t cap, Status status) {
  const Descriptor file{open_retrying(path.c_str(), O_RDONLY)};
  if (file.number < 0) throw Error(status, path + ": cannot be opened: " + reason_of(errno));
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
