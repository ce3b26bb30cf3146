// The structs behind the C ABI's handles of models, updates and their tiles.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "formats/hashed_file.h"
#include "formats/tensor_file.h"
#include "phonograd.h"
#include "update/decoded_update.h"

struct pg_weights {
  // Throws Error(weights) for a file that is no model. `name`: of the file at `path`.
  pg_weights(const std::string& path, const std::string& name);

  phonograd::TensorFile file;
  std::set<std::string> frozen;
};

struct pg_update {
  phonograd::UpdateReader reader;
};

struct pg_tiles {
  std::optional<phonograd::Decoder> decoder;  // none of a frozen tensor
  size_t least;                               // capacity
  std::vector<phonograd::TileRun> runs;
  std::vector<int64_t> told;  // the same, as the caller has them
};

struct pg_decoded {
  phonograd::DecodedUpdate update;
};

constexpr size_t kFirstWritten = sizeof(pg_written);

// Throws Error(usage) unless it is the hash of a file.
void require_identity(const char* sha256, const char* name);

// Fills in the caller's struct.
void tell_written(const phonograd::Written& found, pg_written* written);
