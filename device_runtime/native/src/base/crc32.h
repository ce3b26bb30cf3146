// CRC-32 as zlib computes it (polynomial 0x04C11DB7 reflected): tells a torn or rotten file from a whole one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace phonograd {

// The CRC of the bytes so far continued by `size` more; 0 begins. Thread-safe.
uint32_t crc32(uint32_t crc, const void* data, size_t size);

}  // namespace phonograd
