#include "kernels/sha256.h"

#include "base/cpu_features.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace phonograd {
namespace {

alignas(16) constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t rotate(uint32_t x, int by) {
  return x >> by | x << (32 - by);
}

#if defined(__x86_64__)

// The instructions keep the state as two registers, words a, b, e, f and c, d, g, h, the first in the highest lane.
__attribute__((target("sha,sse4.1,ssse3"))) void by_instructions(uint32_t* state, const unsigned char* bytes,
                                                                 size_t count) {
  const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  auto* words = reinterpret_cast<__m128i*>(state);
  const __m128i badc = _mm_shuffle_epi32(_mm_loadu_si128(words), 0xb1);
  const __m128i hgfe = _mm_shuffle_epi32(_mm_loadu_si128(words + 1), 0x1b);
  __m128i abef = _mm_alignr_epi8(badc, hgfe, 8), cdgh = _mm_blend_epi16(hgfe, badc, 0xf0);
  for (; count > 0; --count, bytes += kSha256Block) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];  // the schedule's last 16 words
    for (int i = 0; i < 4; ++i) {
      w[i] = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes) + i), big_endian);
    }
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      __m128i &first = w[i % 4], &last = w[(i + 3) % 4];
      const __m128i sums = _mm_add_epi32(first, _mm_load_si128(reinterpret_cast<const __m128i*>(kRound) + i));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sums);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sums, 0x0e));
      if (i >= 12) continue;
      const __m128i seventh = _mm_alignr_epi8(last, w[(i + 2) % 4], 4);
      first = _mm_sha256msg2_epu32(_mm_add_epi32(_mm_sha256msg1_epu32(first, w[(i + 1) % 4]), seventh), last);
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128(words, _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128(words + 1, _mm_alignr_epi8(dchg, feba, 8));
}

#elif defined(__aarch64__)

__attribute__((target("sha2"))) void by_instructions(uint32_t* state, const unsigned char* bytes, size_t count) {
  uint32x4_t abcd = vld1q_u32(state), efgh = vld1q_u32(state + 4);
  for (; count > 0; --count, bytes += kSha256Block) {
    const uint32x4_t abcd_before = abcd, efgh_before = efgh;
    uint32x4_t w[4];  // the schedule's last 16 words
    for (int i = 0; i < 4; ++i) w[i] = vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(bytes + 16 * i)));
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      uint32x4_t& first = w[i % 4];
      const uint32x4_t sums = vaddq_u32(first, vld1q_u32(kRound + 4 * i)), from = abcd;
      if (i < 12) first = vsha256su1q_u32(vsha256su0q_u32(first, w[(i + 1) % 4]), w[(i + 2) % 4], w[(i + 3) % 4]);
      abcd = vsha256hq_u32(abcd, efgh, sums);
      efgh = vsha256h2q_u32(efgh, from, sums);
    }
    abcd = vaddq_u32(abcd, abcd_before);
    efgh = vaddq_u32(efgh, efgh_before);
  }
  vst1q_u32(state, abcd);
  vst1q_u32(state + 4, efgh);
}

#endif

}  // namespace

void sha256_portable(uint32_t* state, const unsigned char* bytes, size_t count) {
  for (; count > 0; --count, bytes += kSha256Block) {
    uint32_t w[64];
    for (int i = 0; i < 16; i++) {
      const unsigned char* word = bytes + 4 * i;
      w[i] = uint32_t{word[0]} << 24 | uint32_t{word[1]} << 16 | uint32_t{word[2]} << 8 | uint32_t{word[3]};
    }
    for (int i = 16; i < 64; i++) {
      const uint32_t s0 = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
      const uint32_t s1 = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (int i = 0; i < 64; i++) {
      const uint32_t s1 = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25);
      const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
      const uint32_t s0 = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22);
      const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    const uint32_t round[8] = {a, b, c, d, e, f, g, h};
    for (int i = 0; i < 8; i++) state[i] += round[i];
  }
}

Sha256Blocks sha256_instructions() {
#if defined(__x86_64__) || defined(__aarch64__)
  if (cpu_features().sha256) return by_instructions;
#endif
  return nullptr;
}

Sha256Blocks sha256_blocks() {
  static const Sha256Blocks fastest = sha256_instructions() != nullptr ? sha256_instructions() : sha256_portable;
  return fastest;
}

}  // namespace phonograd
