#include "update/update_file.h"

#include <map>
#include <set>

#include "base/finite.h"
#include "formats/frozen.h"
#include "update/sent_rows.h"
#include "update/update_reader.h"

namespace phonograd {
namespace {

[[noreturn]] void fail(const std::string& what) {
  throw Error(Status::weights, "trained weights: tensor " + what);
}

// The trained tensors in the base's order.
std::vector<Trained> match_tensors(const TensorFile& base, const std::vector<TensorOut>& trained) {
  std::map<std::string, const TensorOut*> found;
  for (const TensorOut& tensor : trained) found[tensor.name] = &tensor;
  std::vector<Trained> data;
  for (const TensorSpec& spec : base.specs()) {
    const auto entry = found.find(spec.name);
    const std::string expected = describe(spec.name, spec.dtype, spec.shape);
    if (entry == found.end()) fail(expected + " expected, not found");
    const TensorOut& tensor = *entry->second;
    if (tensor.dtype != spec.dtype || tensor.shape != spec.shape) {
      fail(expected + " expected, found " + describe(tensor.name, tensor.dtype, tensor.shape));
    }
    if (spec.dtype != "F32") fail(expected + ": an update holds F32 tensors only");
    data.push_back({static_cast<const float*>(tensor.data), tensor.rows});
    found.erase(entry);
  }
  if (!found.empty()) {
    fail(found.begin()->first + " is not part of the model (" + std::to_string(found.size()) + " unexpected)");
  }
  return data;
}

void check_finite(const TensorSpec& spec, const Trained& trained) {
  const size_t at = first_not_finite(trained.data, spec.elements(), trained.rows, row_elements(spec));
  if (at < spec.elements()) fail(spec.name + ": " + not_finite(trained.data, at));
}

void check_count(const char* name, uint64_t count) {
  if (count <= static_cast<uint64_t>(kMaxCount)) return;
  throw Error(Status::update, std::string("update: ") + name + " " + std::to_string(count) +
                                  ": expected a whole number from 0 to " + std::to_string(kMaxCount));
}

EncodedParts encode_parts(const TensorFile& base, const std::vector<TensorOut>& trained, const UpdateInfo& info) {
  const Codec& codec = codec_named(info.codec);
  check_count("round", info.round);
  check_count("tokens", info.tokens);
  check_count("seed", info.seed);
  const std::vector<Trained> data = match_tensors(base, trained);
  const std::set<std::string> frozen = frozen_in(base.path(), base.metadata(), base.specs());
  EncodedParts parts;
  for (size_t i = 0; i < data.size(); ++i) {
    const TensorSpec& spec = base.specs()[i];
    if (frozen.count(spec.name) != 0) continue;
    check_finite(spec, data[i]);
    codec.encode(base, spec, data[i], info.seed, parts);
  }
  return parts;
}

}  // namespace

Written write_update(OutputFile& file, const TensorFile& base, const std::vector<TensorOut>& trained,
                     const UpdateInfo& info) {
  const EncodedParts parts = encode_parts(base, trained, info);
  HashedFile hashed(file);
  write_tensor_file(hashed, parts.tensors, metadata_of(info), [&base] { base.require_unchanged(); }, true);
  return hashed.result();
}

size_t update_bytes(const TensorFile& base, const std::vector<TensorOut>& trained, const UpdateInfo& info) {
  return tensor_file_bytes(encode_parts(base, trained, info).tensors, metadata_of(info), true);
}

}  // namespace phonograd
