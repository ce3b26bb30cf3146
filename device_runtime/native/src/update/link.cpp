#include "update/link.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "formats/frozen.h"
#include "update/deltas.h"
#include "update/draft.h"
#include "update/rotation.h"
#include "update/sent_rows.h"

namespace phonograd {
namespace {

constexpr size_t kPiece = size_t{1} << 18;  // weights in memory at a time

std::vector<TensorSpec> trained_specs(const TensorFile& base) {
  const std::set<std::string> frozen = frozen_in(base.path(), base.metadata(), base.specs());
  std::vector<TensorSpec> trained;
  for (const TensorSpec& spec : base.specs()) {
    if (frozen.count(spec.name) == 0) trained.push_back(spec);
  }
  return trained;
}

void require_tensors(const TensorFile& model, const std::vector<TensorSpec>& expected) {
  for (const TensorSpec& spec : expected) {
    const TensorSpec& found = model.at(spec.name);
    if (found.dtype == "F32" && spec.dtype == "F32" && found.shape == spec.shape) continue;
    throw Error(Status::weights, model.path() + ": tensor " + describe(spec.name, "F32", spec.shape) +
                                     " expected, found " + describe(found.name, found.dtype, found.shape));
  }
}

void read_floats(const TensorFile& file, const std::string& name, size_t start, size_t count, float* out) {
  file.read(file.at(name).offset + start * sizeof(float), count * sizeof(float), out);
}

// Calls `each` for all rows of a tensor: the first of some, and how many.
template <typename Each>
void in_pieces(const TensorSpec& tensor, Each each) {
  const size_t width = std::max<size_t>(1, row_elements(tensor)), step = std::max<size_t>(1, kPiece / width);
  for (size_t first = 0; first < row_count(tensor); first += step) {
    each(first, std::min(step, row_count(tensor) - first));
  }
}

// Numbers of the rows whose bits differ.
std::vector<uint32_t> changed_rows(const TensorSpec& tensor, const TensorFile& base, const TensorFile& model) {
  const size_t width = row_elements(tensor);
  std::vector<uint32_t> changed;
  std::vector<float> old, next;
  in_pieces(tensor, [&](size_t first, size_t count) {
    old.resize(count * width), next.resize(count * width);
    read_floats(base, tensor.name, first * width, count * width, old.data());
    read_floats(model, tensor.name, first * width, count * width, next.data());
    for (size_t row = 0; row < count; ++row) {
      if (std::memcmp(&old[row * width], &next[row * width], width * sizeof(float)) == 0) continue;
      changed.push_back(static_cast<uint32_t>(first + row));
    }
  });
  return changed;
}

// The deltas of all tensors: what is wanted less the base, in float64, cut and rounded to float32.
class WantedDeltas {
 public:
  WantedDeltas(const TensorFile& base, const LossyLink& wanted) : base_(base), wanted_(wanted) {}

  void read(const TensorSpec& tensor, size_t start, size_t count, float* out) {
    old_.resize(count), left_out_.assign(count, 0.0f);
    read_floats(base_, tensor.name, start, count, old_.data());
    read_floats(wanted_.model, tensor.name, start, count, out);
    const TensorFile* residual = wanted_.residual;
    if (residual != nullptr) read_floats(*residual, tensor.name, start, count, left_out_.data());
    constexpr double kLargest = kLargestDelta;
    for (size_t i = 0; i < count; ++i) {
      const double delta = static_cast<double>(out[i]) + left_out_[i] - old_[i];
      out[i] = static_cast<float>(std::min(std::max(delta, -kLargest), kLargest));
    }
  }

 private:
  const TensorFile& base_;
  const LossyLink& wanted_;
  std::vector<float> old_, left_out_;
};

using RowsByTensor = std::map<std::string, std::vector<uint32_t>>;

// The `most` rows of largest norm, of all tensors together: ties by tensor, then row. Those of norm 0 are left out.
RowsByTensor largest_rows(const std::vector<TensorSpec>& tensors, size_t most, WantedDeltas& deltas) {
  std::vector<std::pair<const TensorSpec*, uint32_t>> rows;
  std::vector<double> norms;
  std::vector<float> piece;
  for (const TensorSpec& tensor : tensors) {
    if (!has_rows(tensor)) continue;
    const size_t width = row_elements(tensor);
    RowNorm norm(width);
    in_pieces(tensor, [&](size_t first, size_t count) {
      piece.resize(count * width);
      deltas.read(tensor, first * width, count * width, piece.data());
      for (size_t row = 0; row < count; ++row) {
        rows.emplace_back(&tensor, static_cast<uint32_t>(first + row));
        norms.push_back(norm(&piece[row * width]));
      }
    });
  }
  std::vector<size_t> order(norms.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return norms[a] > norms[b]; });
  order.resize(std::min(most, order.size()));
  RowsByTensor chosen;
  for (const size_t place : order) {
    if (norms[place] > 0) chosen[rows[place].first->name].push_back(rows[place].second);
  }
  for (auto& entry : chosen) std::sort(entry.second.begin(), entry.second.end());
  return chosen;
}

// Values [start, start + count) of these rows of a tensor, one row after the other.
void read_rows(const TensorSpec& tensor, const std::vector<uint32_t>& rows, size_t start, size_t count, float* out,
               WantedDeltas& deltas) {
  const size_t width = row_elements(tensor);
  while (count > 0) {
    const size_t at = start % width, some = std::min(count, width - at);
    deltas.read(tensor, rows[start / width] * width + at, some, out);
    start += some, out += some, count -= some;
  }
}

bool moves(const TensorSpec& tensor, WantedDeltas& deltas) {
  std::vector<float> piece;
  for (size_t start = 0; start < tensor.elements(); start += piece.size()) {
    piece.resize(std::min(kPiece, tensor.elements() - start));
    deltas.read(tensor, start, piece.size(), piece.data());
    if (std::any_of(piece.begin(), piece.end(), [](float delta) { return delta != 0; })) return true;
  }
  return false;
}

EncodedParts lossy_parts(const TensorFile& base, const LossyLink& wanted, uint64_t seed) {
  const std::vector<TensorSpec> tensors = trained_specs(base);
  WantedDeltas deltas(base, wanted);
  const RowsByTensor chosen = largest_rows(tensors, wanted.rows, deltas);
  EncodedParts parts;
  for (const TensorSpec& tensor : tensors) {
    if (has_rows(tensor)) {
      const auto found = chosen.find(tensor.name);
      if (found == chosen.end()) continue;
      const std::vector<uint32_t>& rows = found->second;
      const auto read = [&](size_t start, size_t count, float* out) {
        read_rows(tensor, rows, start, count, out, deltas);
      };
      add_mask(tensor, row_count(tensor), rows, parts);
      add_rotated(tensor.name, rows.size() * row_elements(tensor), wanted.bits, seed, read, parts, Scaling::nearest);
    } else if (moves(tensor, deltas)) {
      const auto read = [&](size_t start, size_t count, float* out) { deltas.read(tensor, start, count, out); };
      add_rotated(tensor.name, tensor.elements(), kWholeBits, seed, read, parts, Scaling::nearest);
    }
  }
  return parts;
}

Written write_parts(const std::string& path, const EncodedParts& parts, const Metadata& metadata) {
  AtomicFile file(path);
  HashedFile hashed(file);
  write_tensor_file(hashed, parts.tensors, metadata, {}, true);
  return hashed.result();
}

}  // namespace

Written write_lossless_link(OutputFile& file, const TensorFile& base, const TensorFile& model, const UpdateInfo& info,
                            const std::string& result_sha256) {
  const std::vector<TensorSpec> tensors = trained_specs(base);
  require_tensors(model, tensors);
  std::vector<TensorSpec> parts;
  RowsByTensor changed;
  for (const TensorSpec& tensor : tensors) {
    std::vector<uint32_t> rows = changed_rows(tensor, base, model);
    if (rows.size() >= rows_as_large(tensor)) {
      parts.push_back(tensor);
      continue;
    }
    for (TensorSpec& part : numbered_rows(tensor, rows.size())) parts.push_back(std::move(part));
    changed[tensor.name] = std::move(rows);
  }

  std::vector<float> piece;
  const auto send = [&](const TensorSpec& tensor, size_t start, size_t stop, const Sink& sink) {
    for (; start < stop; start += piece.size()) {
      piece.resize(std::min(kPiece, stop - start));
      read_floats(model, tensor.name, start, piece.size(), piece.data());
      sink(piece.data(), piece.size() * sizeof(float));
    }
  };
  const auto produce = [&](const TensorSpec& part, const Sink& sink) {
    const std::string name = part.name.substr(0, part.name.rfind('.'));
    const auto found = changed.find(name);
    if (found == changed.end() || base.find(part.name) != nullptr) {
      return send(part, 0, part.elements(), sink);
    }
    if (part.dtype == "U32") return sink(found->second.data(), part.bytes);
    const TensorSpec& tensor = base.at(name);
    const size_t width = row_elements(tensor);
    const std::vector<uint32_t>& rows = found->second;
    for (size_t first = 0, next = 0; first < rows.size(); first = next) {
      next = first + 1;
      while (next < rows.size() && rows[next] == rows[next - 1] + 1) ++next;
      send(tensor, rows[first] * width, (rows[next - 1] + 1) * width, sink);
    }
  };
  HashedFile hashed(file);
  const Metadata metadata = link_metadata(info, result_sha256, model.metadata());
  stream_tensor_file(hashed, parts, metadata, true, produce);
  hashed.commit();
  return hashed.result();
}

LinkedModel write_lossy_link(const std::string& link, const std::string& result, const TensorFile& base,
                             const LossyLink& wanted, const UpdateInfo& info) {
  const std::vector<TensorSpec> tensors = trained_specs(base);
  require_tensors(wanted.model, tensors);
  if (wanted.residual != nullptr) require_tensors(*wanted.residual, tensors);
  const EncodedParts parts = lossy_parts(base, wanted, info.seed);
  const Metadata& metadata = wanted.model.metadata();
  write_parts(link, parts, link_metadata(info, "", metadata));

  LinkedModel written;
  {
    AtomicFile file(result);
    Draft draft(base, metadata, file);
    draft.apply(UpdateReader(link), frozen_in(base.path(), base.metadata(), base.specs()));
    written.model = {draft.bytes(), sha256_of_descriptor(file.descriptor(), result, Status::storage)};
    file.commit();
  }
  written.link = write_parts(link, parts, link_metadata(info, written.model.sha256, metadata));
  return written;
}

}  // namespace phonograd
