// An update open for reading, or a link: an update that says which model it leads to. FORMAT.md, "Updates" and "Links".
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "formats/tensor_file.h"
#include "update/codec.h"
#include "update/update_file.h"

namespace phonograd {

using Metadata = std::map<std::string, std::string>;

// Whether the metadata are those of an update or a link.
bool is_update(const Metadata& metadata);

// Not copyable. Const methods are thread-safe.
class UpdateReader {
 public:
  // Reads the file once, to hold it to its checksum. `start`: its first byte where others may follow it in the file;
  // none: it is all of that file. Throws Error(update) for what is no whole update of a known codec.
  explicit UpdateReader(const std::string& path, std::optional<size_t> start = std::nullopt);

  const TensorFile& file() const { return file_; }
  const UpdateInfo& info() const { return info_; }
  const Codec& codec() const { return *codec_; }

  bool is_link() const;
  // The model that a link leads to, and that model's own metadata. Throws Error(update) for an update.
  const std::string& result_sha256() const;
  Metadata result_metadata() const;

  // The parts of one tensor of the model. Throws Error(update) unless they are those that the codec has of it. Values
  // are not looked at.
  std::vector<TensorSpec> parts_of(const TensorSpec& tensor) const;
  // The same of all tensors but the `frozen`, of which there must be none, like any other part.
  void check_parts(const std::vector<TensorSpec>& model, const std::set<std::string>& frozen) const;

  // Throws Error(update): what is wrong, and what to do about it.
  [[noreturn]] void fail(const std::string& what) const;

  static constexpr const char* kResult = "result_sha256";

 private:
  const std::string& text(const std::string& key) const;
  uint64_t number(const std::string& key) const;

  TensorFile file_;
  UpdateInfo info_;
  const Codec* codec_;
};

// Opens the links of a file one after the other, the oldest first. Throws what opening one does, what result_sha256()
// does, and what `each` throws.
void for_each_link(const std::string& path, const std::function<void(const UpdateReader&)>& each);

// The metadata of an update.
Metadata metadata_of(const UpdateInfo& info);
// The metadata of a link to a model with metadata `result`.
Metadata link_metadata(const UpdateInfo& info, const std::string& result_sha256, const Metadata& result);

}  // namespace phonograd
