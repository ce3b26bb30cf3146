// `phonograd-phone info`: what this phone's CPU offers, and what the engine makes of it.
#include <unistd.h>

#include "phone/commands.h"
#include "phone/cores.h"
#include "phone/json_line.h"
#include "phonograd.h"

namespace phonograd::phone {
namespace {

int run(const Arguments&) {
  std::vector<JsonLine> cores;
  for (const Core& core : allowed_cores()) {
    JsonLine line;
    line.whole("core", core.number);
    if (core.max_khz > 0) line.whole("max_khz", core.max_khz);
    if (core.capacity > 0) line.whole("capacity", core.capacity);
    cores.push_back(line);
  }
  JsonLine line("info");
  line.text("version", kVersion).whole("abi_version", pg_abi_version()).raw("cpu", pg_cpu_info());
  line.list("cores", cores).whole("page_bytes", sysconf(_SC_PAGESIZE));
  line.whole("memory_bytes", int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE)).print();
  return 0;
}

}  // namespace

Command info_command() {
  return {{"info", "", "The CPU's features and cores, and the kernels chosen.", {}}, run};
}

}  // namespace phonograd::phone
