// `phonograd-phone info`: this phone's CPU, and which kernels and cores the engine would use.
#include <unistd.h>

#include "phone/commands.h"
#include "phone/cores.h"
#include "phone/print.h"
#include "phonograd.h"

namespace phonograd::phone {
namespace {

// The cores that each value of --cores selects, fastest first; big and little only if /sys tells them apart.
JsonLine choices(const std::vector<Core>& allowed) {
  std::vector<std::string> words = {"all"};
  if (!big_cores(allowed).empty()) words.insert(words.end(), {"big", "little"});
  JsonLine line;
  for (const std::string& word : words) {
    std::vector<int> numbers;
    for (const Core& core : fastest_first(chosen_cores(allowed, word))) numbers.push_back(core.number);
    line.integers(word.c_str(), numbers);
  }
  return line;
}

int run(const Arguments&) {
  const std::vector<Core> allowed = allowed_cores();
  std::vector<JsonLine> cores;
  for (const Core& core : allowed) {
    JsonLine line;
    line.integer("core", core.number);
    if (core.max_khz > 0) line.integer("max_khz", core.max_khz);
    if (core.capacity > 0) line.integer("capacity", core.capacity);
    cores.push_back(line);
  }
  JsonLine line("info");
  line.text("version", pg_version()).integer("abi_version", pg_abi_version()).raw("cpu", pg_cpu_info());
  line.list("cores", cores).object("choices", choices(allowed)).integer("page_bytes", sysconf(_SC_PAGESIZE));
  print(line.integer("memory_bytes", int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE)));
  return 0;
}

}  // namespace

Command info_command() {
  return {{"info", "", "Show the CPU's features and cores, and the kernels it can run.", {}}, run};
}

}  // namespace phonograd::phone
