// Structs of the C ABI that begin with their size, so that later versions may append fields.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "capi/border.h"

namespace phonograd::border {

// `first`: the size that the struct had when it appeared.
template <typename Struct>
void require_size(const Struct* given, size_t first, const char* name) {
  require(given != nullptr, std::string(name) + ": NULL");
  require(given->size >= first, std::string(name) + ": `size` " + std::to_string(given->size) + ": expected at least " +
                                    std::to_string(first) + "; set it to sizeof(" + name + ")");
}

// A caller's options. Fields that the caller's version has not are zero; of fields that this one has not, all bytes
// must be. Throws Error(usage).
template <typename Options>
Options options_of(const Options* given, size_t first, const char* name) {
  require_size(given, first, name);
  const auto* bytes = reinterpret_cast<const char*>(given);
  const size_t known = std::min(given->size, sizeof(Options));
  require(std::all_of(bytes + known, bytes + given->size, [](char byte) { return byte == 0; }),
          std::string(name) + ": a field beyond byte " + std::to_string(sizeof(Options)) +
              " is set, which this version of phonograd does not know; set it to zero, or update phonograd");
  Options options{};
  std::memcpy(&options, given, known);
  return options;
}

// Fill in a caller's struct, as much of it as the caller has; what this version does not know becomes zero.
template <typename Facts>
void fill_in(const Facts& facts, size_t first, const char* name, Facts* given) {
  require_size(given, first, name);
  const size_t size = given->size;
  std::memset(static_cast<void*>(given), 0, size);
  std::memcpy(static_cast<void*>(given), &facts, std::min(size, sizeof(Facts)));
  given->size = size;
}

}  // namespace phonograd::border
