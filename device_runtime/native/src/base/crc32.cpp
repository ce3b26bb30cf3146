#include "base/crc32.h"

#include <array>

#include "base/cpu_features.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>

#include <cstring>
#endif

namespace phonograd {
namespace {

constexpr int kSlices = 8;
using Tables = std::array<std::array<uint32_t, 256>, kSlices>;

// A reflected remainder times x, modulo the polynomial.
constexpr uint32_t times_x(uint32_t value) {
  return (value >> 1) ^ ((value & 1) ? 0xEDB88320u : 0u);
}

constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = times_x(value);
    tables[0][byte] = value;
  }
  for (size_t slice = 1; slice < kSlices; ++slice) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[slice - 1][byte];
      tables[slice][byte] = (before >> 8) ^ tables[0][before & 0xFF];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

constexpr size_t kFolded = 64;  // bytes that the instructions take at a time

#if defined(__x86_64__)

// x^n modulo the polynomial, as a product of reflected words needs it.
constexpr uint64_t power(int n) {
  uint32_t value = 0x80000000u;
  for (int i = 0; i < n; ++i) value = times_x(value);
  return uint64_t{value} << 1;
}

// Moves 16 bytes as far on as `powers` say, and adds the bytes that are there.
__attribute__((target("pclmul"))) inline __m128i moved(__m128i bytes, __m128i powers, __m128i there) {
  const __m128i low = _mm_clmulepi64_si128(bytes, powers, 0x00), high = _mm_clmulepi64_si128(bytes, powers, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), there);
}

// Folds whole pieces of 64 bytes into 16 that have the same remainder (Gopal et al., "Fast CRC Computation for Generic
// Polynomials Using PCLMULQDQ Instruction", 2009), of which the tables then make the checksum.
__attribute__((target("pclmul"))) uint32_t by_instructions(uint32_t crc, const unsigned char* bytes, size_t size) {
  const __m128i by_64 = _mm_set_epi64x(power(512 - 32), power(512 + 32));
  const __m128i by_16 = _mm_set_epi64x(power(128 - 32), power(128 + 32));
  const auto* at = reinterpret_cast<const __m128i*>(bytes);
  __m128i x[4];
  for (int i = 0; i < 4; ++i) x[i] = _mm_loadu_si128(at + i);
  x[0] = _mm_xor_si128(x[0], _mm_cvtsi32_si128(static_cast<int>(~crc)));
  for (at += 4; size > kFolded; size -= kFolded, at += 4) {
    for (int i = 0; i < 4; ++i) x[i] = moved(x[i], by_64, _mm_loadu_si128(at + i));
  }
  for (int i = 1; i < 4; ++i) x[i] = moved(x[i - 1], by_16, x[i]);
  unsigned char rest[16];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(rest), x[3]);
  return crc32_portable(~0u, rest, sizeof rest);
}

#elif defined(__aarch64__)

__attribute__((target("crc"))) uint32_t by_instructions(uint32_t crc, const unsigned char* bytes, size_t size) {
  crc = ~crc;
  for (; size > 0; bytes += sizeof(uint64_t), size -= sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, bytes, sizeof word);
    crc = __crc32d(crc, word);
  }
  return ~crc;
}

#endif

}  // namespace

// Eight bytes at a time ("slicing by 8"): a state is 105 MB, and one byte at a time would take as long as a training
// step.
uint32_t crc32_portable(uint32_t crc, const void* data, size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  crc = ~crc;
  for (; size >= 8; bytes += 8, size -= 8) {
    crc ^= static_cast<uint32_t>(bytes[0]) | static_cast<uint32_t>(bytes[1]) << 8 |
           static_cast<uint32_t>(bytes[2]) << 16 | static_cast<uint32_t>(bytes[3]) << 24;
    crc = kTables[7][crc & 0xFF] ^ kTables[6][(crc >> 8) & 0xFF] ^ kTables[5][(crc >> 16) & 0xFF] ^
          kTables[4][crc >> 24] ^ kTables[3][bytes[4]] ^ kTables[2][bytes[5]] ^ kTables[1][bytes[6]] ^
          kTables[0][bytes[7]];
  }
  for (; size > 0; ++bytes, --size) crc = (crc >> 8) ^ kTables[0][(crc ^ *bytes) & 0xFF];
  return ~crc;
}

uint32_t crc32(uint32_t crc, const void* data, size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(data);
#if defined(__x86_64__) || defined(__aarch64__)
  if (const size_t whole = size / kFolded * kFolded; whole > 0 && cpu_features().crc32) {
    crc = by_instructions(crc, bytes, whole);
    bytes += whole;
    size -= whole;
  }
#endif
  return crc32_portable(crc, bytes, size);
}

}  // namespace phonograd
