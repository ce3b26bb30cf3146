// SHA-256 of whole blocks (FIPS 180-4, 6.2.2), by the CPU's own instructions where it has them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace phonograd {

constexpr size_t kSha256Block = 64;  // bytes

// Takes `count` blocks at `bytes` into the state of eight words. Thread-safe.
using Sha256Blocks = void (*)(uint32_t* state, const unsigned char* bytes, size_t count);

void sha256_portable(uint32_t* state, const unsigned char* bytes, size_t count);

// The instructions' version; nullptr where this CPU has none.
Sha256Blocks sha256_instructions();

// The fastest that this CPU can run.
Sha256Blocks sha256_blocks();

}  // namespace phonograd
