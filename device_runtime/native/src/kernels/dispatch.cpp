// Which kernels this CPU can run.
#include <cstring>
#include <string>

#include "base/error.h"
#include "kernels/cpu_features.h"
#include "kernels/kernel_set.h"

namespace phonograd {

namespace portable {
extern const KernelSet set;
}
#if defined(__x86_64__)
namespace avx2 {
extern const KernelSet set;
}
namespace avx512 {
extern const KernelSet set;
}
#elif defined(__aarch64__)
namespace neon {
extern const KernelSet set;
}
#endif

namespace {

struct Available {
  const KernelSet* sets[3] = {};
  size_t count = 0;

  Available() {
#if defined(__x86_64__)
    const CpuFeatures& cpu = cpu_features();
    if (cpu.avx512 && cpu.avx2 && cpu.fma) sets[count++] = &avx512::set;
    if (cpu.avx2 && cpu.fma) sets[count++] = &avx2::set;
#elif defined(__aarch64__)
    sets[count++] = &neon::set;
#endif
    sets[count++] = &portable::set;
  }
};

const Available& available() {
  static const Available found;
  return found;
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
              "kernels '" + std::string(name) + "': this CPU runs " + names + "; choose one of these or none");
}

}  // namespace phonograd
