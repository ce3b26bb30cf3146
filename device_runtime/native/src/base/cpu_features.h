// What this CPU, and the system on it, can run.
#pragma once

namespace phonograd {

struct CpuFeatures {
  // x86-64; the AVX-512 ones only where the system saves their registers
  bool avx2 = false, fma = false, avx512 = false, avx512_bf16 = false;  // avx512: F, VL, BW and DQ
  bool amx_bf16 = false;  // with avx512_bf16, and only where the system lets this process use tiles
  // AArch64
  bool neon = false, half = false, dot = false, i8mm = false, bf16 = false;
  bool sme = false, sme_bf16 = false;  // sme: also products of fp32
  bool sha256 = false, crc32 = false;  // on both: instructions for them
};

const CpuFeatures& cpu_features();

}  // namespace phonograd
