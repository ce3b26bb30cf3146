// What crypto.h and the keystream's kernels compute: a line of stdin is a function and its arguments in hexadecimal
// ("-": none), numbers in decimal; a line of stdout is the result in hexadecimal, "yes", "no" or "refused".
#include <cstdio>
#include <cstring>
#include <iostream>
#include <new>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/random_bytes.h"
#include "crypto/crypto.h"
#include "kernels/kernel_set.h"

using namespace phonograd;

namespace {

using Buffer = std::vector<uint8_t>;

std::string hex(const void* data, size_t size) {
  std::string digits;
  for (size_t i = 0; i < size; ++i) {
    const uint8_t byte = static_cast<const uint8_t*>(data)[i];
    digits += "0123456789abcdef"[byte >> 4];
    digits += "0123456789abcdef"[byte & 15];
  }
  return digits.empty() ? "-" : digits;
}

// The arguments of one line, in order.
class Arguments {
 public:
  explicit Arguments(const std::string& line) : words_(line) {}

  std::string word() {
    std::string found;
    words_ >> found;
    return found;
  }
  size_t number() { return std::stoul(word()); }
  Buffer buffer() {
    const std::string digits = word();
    Buffer bytes;
    for (size_t i = 0; i + 1 < digits.size(); i += 2) {
      bytes.push_back(static_cast<uint8_t>(std::stoul(digits.substr(i, 2), nullptr, 16)));
    }
    return bytes;
  }
  template <class Array>
  Array array() {
    Array out;
    std::memcpy(out.data(), buffer().data(), out.size());
    return out;
  }

 private:
  std::istringstream words_;
};

Secret<32> drawn() {
  Secret<32> secret;
  random_bytes(secret.data(), secret.size());
  return secret;
}

// A Secret's storage after its end, and what it was moved from, must be zeros, and its bytes must have been there.
std::string wiped() {
  using Key = Secret<32>;
  alignas(Key) unsigned char storage[2][sizeof(Key)];
  auto* first = new (storage[0]) Key(drawn());
  const std::string bytes = hex(first->data(), 32);
  auto* second = new (storage[1]) Key(std::move(*first));
  const std::string moved = hex(second->data(), 32), left = hex(first->data(), 32);
  *first = std::move(*second);
  const std::string back = hex(first->data(), 32), right = hex(second->data(), 32);
  first->~Key();
  const std::string zeros(64, '0');
  const bool wiped = left == zeros && right == zeros && hex(storage[0], 32) == zeros;
  return wiped && moved == bytes && back == bytes && bytes != zeros ? "yes" : "no";
}

std::string keystream_of(Arguments& line) {
  const KernelSet& set = kernel_set(line.word().c_str());
  const Buffer key = line.buffer();
  const auto nonce = static_cast<uint32_t>(line.number()), counter = static_cast<uint32_t>(line.number());
  const std::string what = line.word();
  const size_t n = line.number();
  std::vector<uint32_t> sums(n + 1);
  for (size_t i = 0; i <= n; ++i) sums[i] = static_cast<uint32_t>(i) * 0x9E3779B9u;
  set.add_keystream(key.data(), nonce, counter, n, what.substr(0, 2) == "16" ? 16 : 32, what.back() == '-',
                    sums.data());
  return hex(sums.data(), 4 * sums.size());
}

std::string answer(const std::string& what, Arguments& line) {
  if (what == "wiped") return wiped();
  if (what == "keystream") return keystream_of(line);
  if (what == "random") return hex(drawn().data(), 32);
  if (what == "hkdf") {
    const Buffer secret = line.buffer(), salt = line.buffer(), info = line.buffer();
    Secret<32> key;
    hkdf_sha256(bytes_of(secret), bytes_of(salt), bytes_of(info), key);
    return hex(key.data(), key.size());
  }
  if (what == "verify") {
    const auto key = line.array<PublicKey>();
    const Buffer message = line.buffer();
    return ed25519_verify(key, bytes_of(message), line.array<Signature>()) ? "yes" : "no";
  }
  const auto secret = line.array<Secret<32>>();
  if (what == "x25519") return hex(x25519_public(secret).data(), 32);
  if (what == "ed25519") return hex(ed25519_public(secret).data(), 32);
  if (what == "sign") return hex(ed25519_sign(secret, bytes_of(line.buffer())).data(), 64);
  if (what == "shared") {
    Secret<32> shared = drawn();
    const bool agreed = x25519_shared(secret, line.array<PublicKey>(), shared);
    if (!agreed && hex(shared.data(), 32) != std::string(64, '0')) return "not zeros";
    return agreed ? hex(shared.data(), 32) : "refused";
  }
  Buffer text = line.buffer();  // in place
  const size_t size = text.size();
  if (what == "seal") {
    text.resize(size + kTagBytes);
    seal(secret, {text.data(), size}, text.data());
    return hex(text.data(), text.size());
  }
  const Buffer before = text;
  if (open_sealed(secret, {text.data(), size}, text.data())) return hex(text.data(), size - kTagBytes);
  return text == before ? "refused" : "written";
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    Arguments arguments(line);
    const std::string what = arguments.word();
    std::cout << answer(what, arguments) << "\n";
  }
}
