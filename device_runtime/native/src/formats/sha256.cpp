#include "formats/sha256.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/files.h"
#include "kernels/sha256.h"

namespace phonograd {
namespace {

constexpr size_t kChunkBytes = 1 << 17;

}  // namespace

void Sha256::update(const void* data, size_t bytes) {
  const Sha256Blocks take = sha256_blocks();
  const unsigned char* next = static_cast<const unsigned char*>(data);
  while (bytes > 0) {
    const size_t filled = bytes_ % kSha256Block;
    const bool whole = filled == 0 && bytes >= kSha256Block;
    const size_t taken = whole ? bytes / kSha256Block * kSha256Block : std::min(bytes, kSha256Block - filled);
    if (whole) {
      take(state_.data(), next, taken / kSha256Block);
    } else {
      std::memcpy(pending_.data() + filled, next, taken);
      if (filled + taken == kSha256Block) take(state_.data(), pending_.data(), 1);
    }
    bytes_ += taken, next += taken, bytes -= taken;
  }
}

std::string Sha256::hex() {
  const uint64_t bits = bytes_ * 8;
  const unsigned char padding[64] = {0x80};
  update(padding, 1 + (119 - bytes_ % 64) % 64);
  unsigned char length[8];
  for (int i = 0; i < 8; i++) length[i] = static_cast<unsigned char>(bits >> (56 - 8 * i));
  update(length, 8);
  std::string digits;
  for (const uint32_t word : state_) {
    for (int shift = 28; shift >= 0; shift -= 4) digits += "0123456789abcdef"[word >> shift & 15];
  }
  return digits;
}

bool is_sha256(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

std::string sha256_hex(const void* data, size_t bytes) {
  Sha256 digest;
  digest.update(data, bytes);
  return digest.hex();
}

std::string sha256_of_descriptor(int descriptor, const std::string& path, Status status) {
  const auto chunk = std::make_unique<unsigned char[]>(kChunkBytes);
  Sha256 digest;
  off_t at = 0;
  ssize_t count;
  while ((count = pread(descriptor, chunk.get(), kChunkBytes, at)) != 0) {
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw Error(status, path + ": cannot be read: " + reason_of(errno));
    digest.update(chunk.get(), static_cast<size_t>(count));
    at += count;
  }
  return digest.hex();
}

std::string sha256_of_file(const std::string& path, Status status) {
  const int file = open_to_read(path, status);
  try {
    std::string digits = sha256_of_descriptor(file, path, status);
    close(file);
    return digits;
  } catch (...) {
    close(file);
    throw;
  }
}

}  // namespace phonograd
