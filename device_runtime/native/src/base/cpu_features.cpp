#include "base/cpu_features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__) && !defined(__ANDROID__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace phonograd {

namespace {

#if defined(__x86_64__)

// By hand: __builtin_cpu_supports finds nothing where the compiler's runtime is linked statically into a library.
bool bit(unsigned value, int number) {
  return (value >> number & 1) != 0;
}

// Whether the system lets this process use tiles: Linux must be asked first, for all threads to come.
bool tiles_allowed() {
#if defined(__linux__) && !defined(__ANDROID__)
  constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
#else
  return false;
#endif
}

CpuFeatures detect() {
  CpuFeatures found;
  unsigned a, b, c, d;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || !bit(c, 27)) return found;  // 27: the system uses XSAVE
  const bool fma = bit(c, 12), sse41 = bit(c, 19);
  const bool crc32 = bit(c, 1);  // PCLMULQDQ
  unsigned saved, high;
  __asm__("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
  constexpr unsigned kAvx = 0x6, kAvx512 = 0xe6, kTiles = 0x60000;
  if ((saved & kAvx) != kAvx || __get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return found;
  found.fma = fma;
  found.crc32 = crc32;
  found.avx2 = bit(b, 5);
  found.sha256 = sse41 && bit(b, 29);
  found.avx512 = (saved & kAvx512) == kAvx512 && bit(b, 16) && bit(b, 17) && bit(b, 30) && bit(b, 31);
  const bool tiles = (saved & kTiles) == kTiles && bit(d, 22) && bit(d, 24);  // AMX-BF16, AMX-TILE
  if (found.avx512 && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0) found.avx512_bf16 = bit(a, 5);
  found.amx_bf16 = found.avx512_bf16 && tiles && tiles_allowed();
  return found;
}

#elif defined(__APPLE__)

// A name that this macOS does not know, such as before 12, is a feature that is not used.
bool has(const char* name) {
  int value = 0;
  size_t bytes = sizeof value;
  return sysctlbyname(name, &value, &bytes, nullptr, 0) == 0 && value != 0;
}

CpuFeatures detect() {
  CpuFeatures found;
  found.neon = true;
  found.sha256 = has("hw.optional.arm.FEAT_SHA256");
  found.crc32 = has("hw.optional.armv8_crc32");
  found.half = has("hw.optional.arm.FEAT_FP16");
  found.dot = has("hw.optional.arm.FEAT_DotProd");
  found.i8mm = has("hw.optional.arm.FEAT_I8MM");
  found.bf16 = has("hw.optional.arm.FEAT_BF16");
  found.sme = has("hw.optional.arm.FEAT_SME") && has("hw.optional.arm.SME_F32F32");
  found.sme_bf16 = found.sme && has("hw.optional.arm.SME_B16F32");
  return found;
}

#elif defined(__aarch64__)

CpuFeatures detect() {
  // The kernel's numbers (asm/hwcap.h), which older headers lack in part.
  const unsigned long capabilities = getauxval(AT_HWCAP), more = getauxval(AT_HWCAP2);
  CpuFeatures found;
  found.neon = true;
  found.sha256 = (capabilities >> 6 & 1) != 0;
  found.crc32 = (capabilities >> 7 & 1) != 0;
  found.half = (capabilities >> 10 & 1) != 0;
  found.dot = (capabilities >> 20 & 1) != 0;
  found.i8mm = (more >> 13 & 1) != 0;
  found.bf16 = (more >> 14 & 1) != 0;
  found.sme = (more >> 23 & 1) != 0 && (more >> 29 & 1) != 0;  // SME, SME_F32F32
  found.sme_bf16 = found.sme && (more >> 28 & 1) != 0;         // SME_B16F32
  return found;
}

#else

CpuFeatures detect() {
  return {};
}

#endif

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures found = detect();
  return found;
}

}  // namespace phonograd
