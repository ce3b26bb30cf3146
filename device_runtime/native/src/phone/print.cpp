#include "phone/print.h"

#include <cerrno>
#include <cstdio>

#include "base/error.h"
#include "base/files.h"
#include "formats/utf8.h"

namespace phonograd::phone {

void print(const JsonLine& line) {
  const std::string text = line.str() + "\n";
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    throw Error(Status::storage, "stdout: cannot write: " + reason_of(errno) + "; free space or choose another place");
  }
}

void warn_of_unknown(const std::string& what, double share) {
  if (share <= kWarnUnknownShare) return;
  std::fprintf(
      stderr,
      "phonograd-phone: warning: %s: %.0f %% of the words are unknown to the vocabulary; is it UTF-8, and in the "
      "model's language?\n",
      visible(what).c_str(), 100 * share);
}

void warn_of_invalid(const std::string& what, double share) {
  if (share == 0) return;
  std::fprintf(
      stderr,
      "phonograd-phone: warning: %s: %.2g %% of the bytes are not UTF-8; is it Latin-1 (convert it with: iconv -f "
      "LATIN1 -t UTF-8), or no text?\n",
      visible(what).c_str(), 100 * share);
}

}  // namespace phonograd::phone
