// CRC-32 as zlib computes it (polynomial 0x04C11DB7 reflected), to detect a truncated or damaged file.
#pragma once

#include <cstddef>
#include <cstdint>

namespace phonograd {

// Extends the CRC of earlier bytes by `size` more; start with crc = 0. Thread-safe.
uint32_t crc32(uint32_t crc, const void* data, size_t size);

// The same without the CPU's own instructions.
uint32_t crc32_portable(uint32_t crc, const void* data, size_t size);

}  // namespace phonograd
