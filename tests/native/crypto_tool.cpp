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

Bytes all_of(const Buffer& bytes) {
  return {bytes.data(), bytes.size()};
}

// A Secret's storage after its end, and what it was moved from, must be zeros, and its bytes must have been there.
std::string wiped() {
  using Key = Secret<32>;
  alignas(Key) unsigned char storage[2][sizeof(Key)];
  auto* first = new (storage[0]) Key(random_secret<32>());
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
  const Buffer key = line.buffer(), nonce = line.buffer();
  uint32_t words[8], starts[3];
  std::memcpy(words, key.data(), sizeof words);
  std::memcpy(starts, nonce.data(), sizeof starts);
  const auto counter = static_cast<uint32_t>(line.number());
  const std::string what = line.word();
  const size_t n = line.number();
  if (what == "blocks") {
    Buffer out(64 * n + 1, 0xAA);
    set.keystream(words, starts, counter, n, out.data());
    return hex(out.data(), out.size());
  }
  std::vector<uint32_t> sums(n + 1);
  for (size_t i = 0; i <= n; ++i) sums[i] = static_cast<uint32_t>(i) * 0x9E3779B9u;
  const auto add = what.substr(0, 2) == "16" ? set.add_keystream16 : set.add_keystream32;
  add(words, starts, counter, n, what.back() == '-', sums.data());
  return hex(sums.data(), 4 * sums.size());
}

std::string answer(const std::string& what, Arguments& line) {
  if (what == "wiped") return wiped();
  if (what == "keystream") return keystream_of(line);
  if (what == "random") return hex(random_secret<32>().data(), 32);
  if (what == "hkdf") {
    const Buffer secret = line.buffer(), salt = line.buffer(), info = line.buffer();
    Buffer out(line.number());
    hkdf_sha256(all_of(secret), all_of(salt), all_of(info), out.data(), out.size());
    return hex(out.data(), out.size());
  }
  if (what == "verify") {
    const auto key = line.array<PublicKey>();
    const Buffer message = line.buffer();
    return ed25519_verify(key, all_of(message), line.array<Signature>()) ? "yes" : "no";
  }
  const auto secret = line.array<Secret<32>>();
  if (what == "x25519") return hex(x25519_public(secret).data(), 32);
  if (what == "ed25519") return hex(ed25519_public(secret).data(), 32);
  if (what == "equal") return equal(secret, line.array<Secret<32>>()) ? "yes" : "no";
  if (what == "sign") return hex(ed25519_sign(secret, all_of(line.buffer())).data(), 64);
  if (what == "shared") {
    Secret<32> shared = random_secret<32>();
    const bool agreed = x25519_shared(secret, line.array<PublicKey>(), shared);
    if (!agreed && !equal(shared, Secret<32>())) return "not zeros";
    return agreed ? hex(shared.data(), 32) : "refused";
  }
  const auto nonce = line.array<Nonce>();
  const Buffer associated = line.buffer();
  Buffer text = line.buffer();  // in place
  const size_t size = text.size();
  if (what == "seal") {
    text.resize(size + kTagBytes);
    seal(secret, nonce, all_of(associated), {text.data(), size}, text.data());
    return hex(text.data(), text.size());
  }
  const Buffer before = text;
  if (open_sealed(secret, nonce, all_of(associated), {text.data(), size}, text.data())) {
    return hex(text.data(), size - kTagBytes);
  }
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
