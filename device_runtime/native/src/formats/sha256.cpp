#include "formats/sha256.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/files.h"

namespace phonograd {
namespace {

constexpr size_t kChunkBytes = 1 << 17;

constexpr uint32_t kRound[64] = {
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

}  // namespace

void Sha256::block(const unsigned char* bytes) {
  uint32_t w[64];
  for (int i = 0; i < 16; i++) {
    const unsigned char* b = bytes + 4 * i;
    w[i] = uint32_t{b[0]} << 24 | uint32_t{b[1]} << 16 | uint32_t{b[2]} << 8 | uint32_t{b[3]};
  }
  for (int i = 16; i < 64; i++) {
    const uint32_t s0 = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
    const uint32_t s1 = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (int i = 0; i < 64; i++) {
    const uint32_t s1 = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25);
    const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
    const uint32_t s0 = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22);
    const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const uint32_t round[8] = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; i++) state_[i] += round[i];
}

void Sha256::update(const void* data, size_t bytes) {
  const unsigned char* next = static_cast<const unsigned char*>(data);
  while (bytes > 0) {
    const size_t filled = bytes_ % 64;
    const size_t taken = std::min(bytes, 64 - filled);
    if (taken == 64) {
      block(next);
    } else {
      std::memcpy(pending_.data() + filled, next, taken);
      if (filled + taken == 64) block(pending_.data());
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
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw Error(status, path + ": cannot be opened: " + reason_of(errno));
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
