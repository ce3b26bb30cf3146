// The next model, from what a phone has fetched. FORMAT.md, "Links".
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace phonograd {

using Stop = std::function<bool()>;

struct PullSettings {
  std::string fetched;  // file of links, or a whole model
  std::string base;     // the local model, from which links lead; empty without one
  std::string sha256;   // of the model asked for
  std::string out;      // where to write it; may be `base`
};

// What was written.
struct Pulled {
  size_t bytes = 0;
  int64_t links = 0;  // that were applied; 0: what was fetched is the whole model, or the phone had it
};

// Write the model asked for, atomically: `out` has either its former content or all of the new one, whenever the
// process is killed. Memory is a piece of a tensor, the disk's free space must be the model's size. If the local model
// is the one asked for, as after a pull that was killed once it was done, that one is written. `stop` is asked after
// each stage, which takes a phone a second or two: if true, nothing is written, and there is no result. One process at
// a time may pull to `out`.
//
// Throws Error, and leaves `out` as it was: update for links that are damaged, do not fit the local model, or do not
// lead to the one asked for; weights for a damaged model, or another whole model; storage; usage for a `sha256` that is
// not 64 hex digits, for links without `base`, and for an `out` that is `fetched`.
std::optional<Pulled> pull(const PullSettings& settings, const Stop& stop);

}  // namespace phonograd
