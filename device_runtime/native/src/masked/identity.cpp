#include "masked/identity.h"

#include <sys/stat.h>

#include <string_view>

#include "base/error.h"
#include "base/files.h"
#include "base/random_bytes.h"
#include "masked/messages.h"

namespace phonograd {
namespace {

constexpr std::string_view kBegins = "phonograd-key-1 ";

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw Error(Status::usage, path + ": " + what);
}

}  // namespace

Secret<32> new_identity(const std::string& path) {
  struct stat found;
  if (stat(path.c_str(), &found) == 0) refuse(path, "exists; a key is never replaced, choose another place");
  Secret<32> seed;
  random_bytes(seed.data(), seed.size());
  std::string text = std::string(kBegins) + to_hex(seed) + "\n";
  AtomicFile file(path, 0600);
  file.write(text.data(), text.size());
  file.commit();
  wipe(text.data(), text.size());
  return seed;
}

Secret<32> read_identity(const std::string& path) {
  std::string text = read_file(path, 4096, Status::usage);
  Secret<32> seed;
  const bool good = text.size() == kBegins.size() + 65 && text.compare(0, kBegins.size(), kBegins) == 0 &&
                    text.back() == '\n' && from_hex(text.substr(kBegins.size(), 64), seed);
  wipe(text.data(), text.size());
  if (!good) refuse(path, "a key expected; make one with: phonograd keys new");
  struct stat found;
  if (stat(path.c_str(), &found) == 0 && (found.st_mode & 077) != 0) {
    refuse(path, "others may read this key; chmod 600 it, or make another one");
  }
  return seed;
}

std::string public_identity(const Secret<32>& identity) {
  return to_hex(ed25519_public(identity));
}

}  // namespace phonograd
