#include "formats/json_file.h"

#include <unistd.h>

#include "base/files.h"
#include "base/secret.h"

namespace phonograd::json {

bool is_there(const std::string& path) {
  return access(path.c_str(), F_OK) == 0;
}

Value read_own(const std::string& path) {
  std::string text = read_file(path, size_t{64} << 20, Status::state);
  Value value = parse(text, Status::state, path);
  wipe(text.data(), text.size());
  return value;
}

void write_own(const std::string& path, const JsonLine& line) {
  std::string text = line.str() + "\n";
  AtomicFile file(path, 0600);
  file.write(text.data(), text.size());
  file.commit();
  wipe(text.data(), text.size());
}

}  // namespace phonograd::json
