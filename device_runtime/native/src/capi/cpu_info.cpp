// pg_cpu_info: what this CPU can do, and which kernels would run.
#include <sched.h>

#include <string>

#include "kernels/kernel_set.h"
#include "phonograd.h"
#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace {

std::string features() {
  std::string list;
  const auto add = [&list](const char* name, bool there) {
    if (there) list += std::string(list.empty() ? "\"" : ", \"") + name + "\"";
  };
#if defined(__x86_64__)
  __builtin_cpu_init();
  add("avx2", __builtin_cpu_supports("avx2"));
  add("fma", __builtin_cpu_supports("fma"));
  add("avx512f", __builtin_cpu_supports("avx512f"));
  add("avx512bf16", __builtin_cpu_supports("avx512bf16"));
#elif defined(__aarch64__)
  const unsigned long hwcap = getauxval(AT_HWCAP), hwcap2 = getauxval(AT_HWCAP2);
  add("asimd", (hwcap >> 1) & 1);
  add("asimdhp", (hwcap >> 10) & 1);
  add("asimddp", (hwcap >> 20) & 1);
  add("sve", (hwcap >> 22) & 1);
  add("i8mm", (hwcap2 >> 13) & 1);
  add("bf16", (hwcap2 >> 14) & 1);
#endif
  return list;
}

std::string description() {
  size_t count = 0;
  const phonograd::KernelSet* const* sets = phonograd::kernel_sets(&count);
  std::string kernels;
  for (size_t i = 0; i < count; ++i) kernels += std::string(i == 0 ? "\"" : ", \"") + sets[i]->name + "\"";
  cpu_set_t allowed;
  const int cores = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 0;
  return "{\"features\": [" + features() + "], \"cores\": " + std::to_string(cores) + ", \"kernels\": [" + kernels +
         "], \"bf16\": null}";
}

}  // namespace

extern "C" const char* pg_cpu_info(void) {
  static const std::string text = description();
  return text.c_str();
}
