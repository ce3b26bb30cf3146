// Choice of the kernels that this CPU can run.
#include <cstring>
#include <string>

#include "base/cpu_features.h"
#include "base/error.h"
#include "kernels/bf16.h"
#include "kernels/kernel_set.h"

namespace phonograd {

namespace portable {
extern const KernelSet set;
extern const Bf16Kernels emulated;
}  // namespace portable
#if defined(__x86_64__)
namespace avx2 {
extern const KernelSet set;
extern const Bf16Kernels emulated;
}  // namespace avx2
namespace avx512 {
extern const KernelSet set;
extern const Bf16Kernels emulated;
}  // namespace avx512
namespace avx512_bf16 {
extern const Bf16Kernels kernels;
}
namespace amx_bf16 {
extern const Bf16Kernels kernels;
}
#elif defined(__aarch64__)
namespace neon {
extern const KernelSet set;
extern const Bf16Kernels emulated;
}  // namespace neon
namespace neon_bf16 {
extern const Bf16Kernels kernels;
}
namespace neon_dot {
KernelSet with_dot(KernelSet own);
}
namespace sme {
KernelSet with_outer_products(KernelSet own);
extern const Bf16Kernels kernels, emulated;
}  // namespace sme
#endif

namespace {

struct Available {
  const KernelSet* sets[3] = {};
  const Bf16Kernels *emulated[3] = {}, *bf16[3] = {};  // of each set; nullptr where there are none
  size_t count = 0;

  Available() {
    const CpuFeatures& cpu = cpu_features();
#if defined(__x86_64__)
    if (cpu.avx512 && cpu.avx2 && cpu.fma) {
      const Bf16Kernels* vectors = cpu.avx512_bf16 ? &avx512_bf16::kernels : nullptr;
      add(avx512::set, avx512::emulated, cpu.amx_bf16 ? &amx_bf16::kernels : vectors);
    }
    if (cpu.avx2 && cpu.fma) add(avx2::set, avx2::emulated, nullptr);
#elif defined(__aarch64__)
    static const KernelSet vectors = cpu.dot ? neon_dot::with_dot(neon::set) : neon::set;
    static const KernelSet outer_products = sme::with_outer_products(vectors);
    if (cpu.sme) add(outer_products, sme::emulated, cpu.sme_bf16 ? &sme::kernels : nullptr);
    add(vectors, neon::emulated, cpu.bf16 ? &neon_bf16::kernels : nullptr);
#else
    (void)cpu;
#endif
    add(portable::set, portable::emulated, nullptr);
  }

  void add(const KernelSet& set, const Bf16Kernels& emulating, const Bf16Kernels* own) {
    sets[count] = &set;
    emulated[count] = &emulating;
    bf16[count++] = own;
  }
};

const Available& available() {
  static const Available found;
  return found;
}

size_t place_of(const KernelSet& set) {
  size_t at = 0;
  while (available().sets[at] != &set) ++at;
  return at;
}

}  // namespace

const KernelSet* const* kernel_sets(size_t* count) {
  *count = available().count;
  return available().sets;
}

const KernelSet& kernel_set(const char* name) {
  const Available& found = available();
  if (name == nullptr || *name == '\0') return *found.sets[0];
  std::string names;
  for (size_t i = 0; i < found.count; ++i) {
    if (std::strcmp(found.sets[i]->name, name) == 0) return *found.sets[i];
    names += (i == 0 ? "" : ", ") + std::string(found.sets[i]->name);
  }
  throw Error(Status::unsupported,
              "kernels '" + std::string(name) + "': this CPU runs " + names + "; choose one of these, or leave it out");
}

const Bf16Kernels* bf16_instructions(const KernelSet& set) {
  return available().bf16[place_of(set)];
}

const Bf16Kernels& bf16_kernels(const KernelSet& set, bool emulated) {
  if (emulated) return *available().emulated[place_of(set)];
  if (const Bf16Kernels* kernels = bf16_instructions(set)) return *kernels;
  throw Error(Status::unsupported,
              "precision bf16: kernels '" + std::string(set.name) +
                  "' on this CPU have no bf16 instructions (AVX512-BF16, AMX-BF16, Arm BF16, SME); use fp32, or "
                  "bf16-emulated to see what bf16 would give");
}

}  // namespace phonograd
