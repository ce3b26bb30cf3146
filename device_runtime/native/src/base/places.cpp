#include "base/places.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <optional>
#include <tuple>

#include "base/error.h"
#include "base/files.h"

namespace phonograd {
namespace {

// A file by its device and inode; one that is not there by its folder's and its name.
struct Place {
  dev_t device;
  ino_t inode;
  std::string name;  // "" of a file that is there

  bool operator==(const Place& other) const {
    return std::tie(device, inode, name) == std::tie(other.device, other.inode, other.name);
  }
};

using MaybePlace = std::optional<Place>;

[[noreturn]] void refuse(const std::string& path, const std::string& reason) {
  throw Error(Status::storage, path + ": cannot write: " + reason + "; choose another place");
}

// Without slashes at its end.
std::string folder_of(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  const size_t last = path.find_last_not_of('/', slash);
  return last == std::string::npos ? "/" : path.substr(0, last + 1);
}

// None if not even the folder is there.
MaybePlace place_of(const std::string& path) {
  struct stat about{};
  if (stat(path.c_str(), &about) == 0) return Place{about.st_dev, about.st_ino, ""};
  if (stat(folder_of(path).c_str(), &about) != 0) return std::nullopt;
  return Place{about.st_dev, about.st_ino, path.substr(path.rfind('/') + 1)};
}

// Such as /dev/stdout, a link to what the process has open, which a new file would replace.
bool names_a_descriptor(const std::string& path) {
  char* real = realpath(folder_of(path).c_str(), nullptr);
  const std::string folder = real == nullptr ? "" : real;
  free(real);
  return folder == "/dev" || folder == "/proc" || folder.rfind("/proc/", 0) == 0;
}

void require_writable(const std::string& path) {
  struct stat about{};
  if (path.back() == '/') refuse(path, "it is a folder");
  const bool there = stat(path.c_str(), &about) == 0;
  if (there && S_ISDIR(about.st_mode)) refuse(path, "it is a folder");
  if ((there && !S_ISREG(about.st_mode)) || names_a_descriptor(path)) {
    refuse(path, "it is a pipe or a device, not a file");
  }
  const std::string folder = folder_of(path);
  make_folder_of(path);
  if (stat(folder.c_str(), &about) != 0 || !S_ISDIR(about.st_mode)) refuse(path, "no folder " + folder);
  if (access(folder.c_str(), W_OK | X_OK) != 0) refuse(path, "no permission in " + folder);
}

void require_other(const std::string& output, const MaybePlace& place, const std::string& other, const char* what) {
  if (other.empty() || !place || !(place_of(other) == place)) return;
  throw Error(Status::usage, output + ": would replace " + other + ", " + what + "; write to another file");
}

}  // namespace

void make_folder_of(const std::string& path) {
  struct stat about{};
  const std::string folder = folder_of(path);
  if (stat(folder.c_str(), &about) == 0) return;
  make_folder_of(folder);
  if (mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST) {
    refuse(path, "no folder " + folder + ", and it can't be made: " + reason_of(errno));
  }
}

void require_outputs(const std::vector<std::string>& outputs, const std::vector<std::string>& inputs, int descriptor) {
  std::vector<std::string> taken;
  const auto check = [&](const std::string& output, const MaybePlace& place) {
    for (const std::string& input : inputs) require_other(output, place, input, "an input");
    for (const std::string& other : taken) require_other(output, place, other, "another output");
  };
  for (const std::string& output : outputs) {
    if (output.empty()) continue;
    require_writable(output);
    check(output, place_of(output));
    taken.push_back(output);
  }
  struct stat about{};
  if (descriptor < 0 || fstat(descriptor, &about) != 0) return;
  check("descriptor " + std::to_string(descriptor), Place{about.st_dev, about.st_ino, ""});
}

}  // namespace phonograd
