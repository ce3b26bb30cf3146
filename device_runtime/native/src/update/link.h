// A link: an update file that leads from one model to the next. FORMAT.md, "Links"; device_runtime/update/links.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "formats/tensor_file.h"
#include "update/codec.h"

namespace phonograd {

using Metadata = std::map<std::string, std::string>;

// Whether the metadata are those of an update or a link.
bool is_update(const Metadata& metadata);

// A link open for reading.
class Link {
 public:
  // The one that begins at `start`; others may follow. Throws Error: weights for what is no whole tensor file, update
  // for one that is no link, or whose codec or version this reader does not know.
  Link(const std::string& path, size_t start);

  const TensorFile& file() const { return file_; }
  uint64_t seed() const { return seed_; }
  const std::string& base_sha256() const { return base_sha256_; }      // of the model that it leads from
  const std::string& result_sha256() const { return result_sha256_; }  // of the one that it leads to
  Metadata result_metadata() const;                                    // of that model

  // Write the link's weights over those of `draft`, whose tensors in `frozen` have no parts. Throws Error: update or
  // weights for parts that do not fit the model, weights for a weight that is not finite, storage.
  void apply(const std::set<std::string>& frozen, Draft& draft) const;

 private:
  const std::string& text(const std::string& key) const;
  uint64_t number(const std::string& key) const;
  void check_parts(const std::vector<TensorSpec>& expected) const;

  TensorFile file_;
  const Codec* codec_;
  uint64_t seed_;
  std::string base_sha256_, result_sha256_;
};

// Opens the links of a file one after the other, the oldest first. Throws what opening one does, and what `each`
// throws.
void for_each_link(const std::string& path, const std::function<void(const Link&)>& each);

}  // namespace phonograd
