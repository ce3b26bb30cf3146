// pg_cpu_info: what this CPU can do, and which kernels would run.
#include <string>

#include "base/cpu_cores.h"
#include "base/cpu_features.h"
#include "base/error.h"
#include "kernels/bf16.h"
#include "kernels/kernel_set.h"
#include "phonograd.h"

namespace {

std::string features() {
  std::string list;
  const auto add = [&list](const char* name, bool there) {
    if (there) list += std::string(list.empty() ? "\"" : ", \"") + name + "\"";
  };
  const phonograd::CpuFeatures& cpu = phonograd::cpu_features();
  add("avx2", cpu.avx2);
  add("fma", cpu.fma);
  add("avx512", cpu.avx512);
  add("avx512_bf16", cpu.avx512_bf16);
  add("amx_bf16", cpu.amx_bf16);
  add("neon", cpu.neon);
  add("half", cpu.half);
  add("dot", cpu.dot);
  add("i8mm", cpu.i8mm);
  add("bf16", cpu.bf16);
  add("sme", cpu.sme);
  add("sme_bf16", cpu.sme_bf16);
  add("sha256", cpu.sha256);
  add("crc32", cpu.crc32);
  return list;
}

std::string bf16_name() {
  const phonograd::Bf16Kernels* kernels = phonograd::bf16_instructions(phonograd::kernel_set());
  return kernels == nullptr ? "null" : std::string("\"") + kernels->name + "\"";
}

size_t core_count() {
  try {
    return phonograd::allowed_cores().size();
  } catch (const phonograd::Error&) {
    return 0;
  }
}

std::string description() {
  size_t count = 0;
  const phonograd::KernelSet* const* sets = phonograd::kernel_sets(&count);
  std::string kernels;
  for (size_t i = 0; i < count; ++i) kernels += std::string(i == 0 ? "\"" : ", \"") + sets[i]->name + "\"";
  return "{\"features\": [" + features() + "], \"cores\": " + std::to_string(core_count()) + ", \"kernels\": [" +
         kernels + "], \"bf16\": " + bf16_name() + "}";
}

}  // namespace

extern "C" const char* pg_cpu_info(void) {
  static const std::string& text = *new std::string(description());  // callers keep it: it is never freed
  return text.c_str();
}
