// Files of Ed25519 keys: a phone's identity, or the vendor's key that certifies them. FORMAT.md, "Masked rounds".
#pragma once

#include <string>

#include "base/secret.h"

namespace phonograd {

// Make a key in a file that must not exist, readable by its owner alone. Throws Error: usage if it exists, storage,
// unsupported if the system has no random bytes.
Secret<32> new_identity(const std::string& path);
// The key in a file. Throws Error(usage) if the file has no key, or others may read it.
Secret<32> read_identity(const std::string& path);
// The public key of an identity, in hex.
std::string public_identity(const Secret<32>& identity);

}  // namespace phonograd
