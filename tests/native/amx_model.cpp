// The engine's kernels for AMX-BF16 on a model of its instructions, in plain arithmetic after Intel's manual: so they
// run on every CPU. What a CPU would refuse ends the process.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/bf16.h"

#define PHONOGRAD_SET amx_model
#define LANES 16
#define VECTORS 3
#define PAIRS_OF_TILE 16

namespace phonograd::PHONOGRAD_SET {
namespace {

constexpr int kTiles = 8, kMost = 16;  // rows, and 32-bit words of a row

struct Tiles {
  bool configured = false;
  uint16_t row_bytes[kTiles];
  uint8_t rows[kTiles];
  uint32_t words[kTiles][kMost][kMost];
};
thread_local Tiles here;

void expect(bool kept, const char* rule) {
  if (kept) return;
  std::fprintf(stderr, "%s\n", rule);
  std::abort();
}

void _tile_release() {
  here = Tiles{};
}

void _tile_loadconfig(const void* shapes) {
  uint8_t bytes[64];
  std::memcpy(bytes, shapes, sizeof bytes);
  expect(bytes[0] == 1 && std::all_of(bytes + 1, bytes + 16, [](uint8_t byte) { return byte == 0; }), "palette 1");
  expect(std::all_of(bytes + 32, bytes + 48, [](uint8_t byte) { return byte == 0; }), "8 tiles: bytes of a row");
  expect(std::all_of(bytes + 56, bytes + 64, [](uint8_t byte) { return byte == 0; }), "8 tiles: rows");
  _tile_release();
  here.configured = true;
  std::memcpy(here.row_bytes, bytes + 16, sizeof here.row_bytes);
  std::memcpy(here.rows, bytes + 48, sizeof here.rows);
  for (int tile = 0; tile < kTiles; ++tile) {
    expect(here.rows[tile] <= kMost && here.row_bytes[tile] <= 4 * kMost, "tiles of 16 rows of 64 bytes");
  }
}

void expect_used(int tile) {
  expect(here.configured && here.rows[tile] > 0 && here.row_bytes[tile] > 0, "a tile with a shape");
}

void _tile_zero(int tile) {
  expect_used(tile);
  std::memset(here.words[tile], 0, sizeof here.words[tile]);
}

void _tile_loadd(int tile, const void* base, ptrdiff_t stride) {
  expect_used(tile);
  std::memset(here.words[tile], 0, sizeof here.words[tile]);
  for (int r = 0; r < here.rows[tile]; ++r) {
    std::memcpy(here.words[tile][r], static_cast<const char*>(base) + r * stride, here.row_bytes[tile]);
  }
}

void _tile_stored(int tile, void* base, ptrdiff_t stride) {
  expect_used(tile);
  for (int r = 0; r < here.rows[tile]; ++r) {
    std::memcpy(static_cast<char*>(base) + r * stride, here.words[tile][r], here.row_bytes[tile]);
  }
}

float of_bits(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

void _tile_dpbf16ps(int c, int a, int b) {
  for (int tile : {c, a, b}) expect_used(tile);
  expect(here.rows[c] == here.rows[a] && here.row_bytes[c] == here.row_bytes[b], "C has A's rows and B's columns");
  expect(here.row_bytes[a] == 4 * here.rows[b], "A has as many pairs as B has rows");
  for (int m = 0; m < here.rows[c]; ++m) {
    for (int n = 0; n < here.row_bytes[c] / 4; ++n) {
      float first = 0, second = 0;  // the sums of the lower and of the upper halves
      for (int k = 0; k < here.rows[b]; ++k) {
        const uint32_t x = here.words[a][m][k], y = here.words[b][k][n];
        first = std::fma(of_bits(x << 16), of_bits(y << 16), first);
        second = std::fma(of_bits(x & 0xffff0000u), of_bits(y & 0xffff0000u), second);
      }
      const float sum = of_bits(here.words[c][m][n]) + (first + second);
      std::memcpy(&here.words[c][m][n], &sum, sizeof sum);
    }
  }
}

#include "kernels/vectors.inc"
//
#include "kernels/bf16.inc"
//
#include "kernels/amx.inc"

}  // namespace

extern const Bf16Kernels kernels;
const Bf16Kernels kernels = {"amx-model", kPanel, 2, kFilled, true, to_pairs, pack_pairs, multiply_tiles};

}  // namespace phonograd::PHONOGRAD_SET
