#include "masked/grid.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/random_bytes.h"
#include "base/random_words.h"
#include "base/secret.h"
#include "formats/frozen.h"
#include "formats/sha256.h"
#include "kernels/kernel_set.h"
#include "masked/messages.h"
#include "update/deltas.h"

namespace phonograd {
namespace {

constexpr const char* kFormat = "phonograd-grid";
constexpr const char* kCodes = "codes";
constexpr size_t kRows = kGridRows;
constexpr size_t kWords = kRows / 64;  // of a block's signs
constexpr size_t kTile = 256;          // columns that are encoded at once: rows are read in runs of as many
constexpr size_t kSide = 16;           // columns that are turned into blocks at once, which fill cache lines
constexpr size_t kBlock = kRows + 16;  // from block to block: a multiple of 4 KB would let all share a cache's few ways

[[noreturn]] void refuse(const std::string& what) {
  throw Error(Status::update, what);
}

// The deltas of all tensors that are not frozen, as one vector.
class DeltaVector {
 public:
  DeltaVector(const TensorFile& base, const std::vector<TensorOut>& trained) {
    const auto frozen = frozen_in(base.path(), base.metadata(), base.specs());
    for (const TensorSpec& spec : base.specs()) {
      if (frozen.count(spec.name) != 0) continue;
      const auto found = std::find_if(trained.begin(), trained.end(), [&](const TensorOut& one) {
        return one.name == spec.name && one.shape == spec.shape;
      });
      if (found == trained.end()) {
        throw Error(Status::weights, base.path() + ": tensor " + spec.name + ": was not trained, or in another shape");
      }
      deltas_.emplace_back(base, spec, Trained{static_cast<const float*>(found->data), found->rows});
      elements_ += spec.elements();
    }
  }

  size_t elements() const { return elements_; }

  // Elements [start, start + count); zeros beyond the last.
  void read(size_t start, size_t count, float* out) {
    for (Deltas& tensor : deltas_) {
      const size_t left = tensor.elements() - std::min(start, tensor.elements()), some = std::min(count, left);
      if (some > 0) tensor.read(start, some, out);
      start -= std::min(start, tensor.elements()), out += some, count -= some;
    }
    std::fill_n(out, count, 0.0f);
  }

  double norm() {
    std::vector<float> piece(size_t{1} << 16);
    double squares = 0;
    for (size_t start = 0; start < elements_; start += piece.size()) {
      read(start, piece.size(), piece.data());
      squares += kernel_set().sum_of_squares(piece.size(), piece.data());
    }
    return std::sqrt(squares);
  }

 private:
  std::vector<Deltas> deltas_;
  size_t elements_ = 0;
};

uint64_t sign_stream(const GridInfo& info) {
  const std::string seed = hash_of(lines({"phonograd-grid-1", info.base_sha256, hash_of(info.settings)}));
  return stream_of(first_word(seed), "grid");
}

void read_signs(uint64_t stream, size_t block, uint64_t* words) {
  for (size_t i = 0; i < kWords; ++i) words[i] = random_word(stream, block * kWords + i);
}

// Rounds values at random, up or down so that the mean is the value.
class Rounding {
 public:
  explicit Rounding(int64_t largest) : largest_(static_cast<float>(largest)) {
    random_bytes(secret_.data(), secret_.size());
  }

  // codes = floor(y * scale + u), u = (k + 1/2) / 2^16 of the stream's words k, cut to the largest. count: at most
  // kRows and a multiple of 32.
  template <typename Code>
  void operator()(const float* y, float scale, size_t count, Code* codes) {
    uint32_t draws[kRows] = {};
    kernel_set().add_keystream(secret_.data(), 0, counter_, count, 16, false, draws);
    counter_ += static_cast<uint32_t>(count * 2 / 64);
    for (size_t i = 0; i < count; ++i) {
      const float u = (static_cast<float>(draws[i]) + 0.5f) * 0x1p-16f;
      const float up = std::min(std::max(y[i] * scale, -largest_) + u, largest_);
      const auto whole = static_cast<int32_t>(up);
      codes[i] = static_cast<Code>(whole - (up < static_cast<float>(whole)));  // the floor
    }
  }

 private:
  const float largest_;
  Secret<32> secret_;
  uint32_t counter_ = 0;
};

template <typename Code>
void encode(DeltaVector& deltas, const GridShape& shape, uint64_t stream, const Sink& sink) {
  const double norm = deltas.norm(), clipped = norm > shape.settings.clip ? shape.settings.clip / norm : 1;
  const auto scale = static_cast<float>(clipped / (64 * shape.step));
  const auto columns = static_cast<size_t>(shape.columns), sent = static_cast<size_t>(shape.sent);
  const KernelSet& kernels = kernel_set();
  Rounding round(shape.settings.largest());
  std::vector<float> row(kTile), rows(kTile * kRows), blocks(kSide * kBlock);
  std::vector<Code> codes(kSide * sent);
  uint64_t signs[kWords];
  for (size_t first = 0; first < columns; first += kTile) {
    const size_t some = std::min(kTile, columns - first);
    for (size_t r = 0; r < kRows; ++r) {
      deltas.read(r * columns + first, some, row.data());
      for (size_t i = 0; i < some; i += kSide) std::copy_n(row.data() + i, kSide, &rows[i * kRows + r * kSide]);
    }
    for (size_t begin = 0; begin < some; begin += kSide) {
      const size_t side = std::min(kSide, some - begin);
      for (size_t r = 0; r < kRows; ++r) {
        for (size_t i = 0; i < kSide; ++i) blocks[i * kBlock + r] = rows[begin * kRows + r * kSide + i];
      }
      for (size_t i = 0; i < side; ++i) {
        float* x = blocks.data() + i * kBlock;
        read_signs(stream, first + begin + i, signs);
        kernels.change_signs(kRows, signs, x);
        kernels.hadamard(kRows, x);
        round(x, scale, sent, codes.data() + i * sent);
      }
      sink(codes.data(), side * sent * sizeof(Code));
    }
  }
}

const std::string& field(const TensorFile& file, const char* name) {
  const auto found = file.metadata().find(name);
  if (found == file.metadata().end()) refuse(file.path() + ": no grid update: `" + name + "` is missing");
  return found->second;
}

MaskedSettings settings_in(const TensorFile& file) {
  if (field(file, "format") != kFormat)
    refuse(file.path() + ": a grid update expected; train with the round's settings");
  return masked_settings(field(file, "settings"));
}

}  // namespace

Written write_grid(OutputFile& file, const TensorFile& base, const std::vector<TensorOut>& trained,
                   const GridInfo& info) {
  const MaskedSettings settings = masked_settings(info.settings);
  require_steps(settings, info.one_step);
  DeltaVector deltas(base, trained);
  const GridShape shape(settings, static_cast<int64_t>(deltas.elements()));
  TensorSpec spec;
  spec.name = kCodes, spec.dtype = settings.bits <= 8 ? "I8" : "I16", spec.shape = {shape.codes()};
  const std::map<std::string, std::string> metadata = {{"format", kFormat},
                                                       {"version", "1"},
                                                       {"base_sha256", info.base_sha256},
                                                       {"settings", info.settings},
                                                       {"tokens", std::to_string(info.tokens)},
                                                       {"parameters", std::to_string(deltas.elements())}};
  HashedFile hashed(file);
  stream_tensor_file(hashed, {spec}, metadata, true, [&](const TensorSpec&, const Sink& sink) {
    if (settings.bits <= 8) {
      encode<int8_t>(deltas, shape, sign_stream(info), sink);
    } else {
      encode<int16_t>(deltas, shape, sign_stream(info), sink);
    }
  });
  base.require_unchanged();
  file.commit();
  return hashed.result();
}

GridUpdate::GridUpdate(const std::string& path)
    : file_(path, Status::update), shape_(settings_in(file_), std::stoll(field(file_, "parameters"))) {
  info_ = {field(file_, "settings"), field(file_, "base_sha256"), std::stoll(field(file_, "tokens"))};
  const TensorSpec* spec = file_.find(kCodes);
  if (spec == nullptr || spec->shape != std::vector<int64_t>{shape_.codes()} ||
      spec->dtype != (shape_.settings.bits <= 8 ? "I8" : "I16")) {
    refuse(path + ": no grid update: its codes are not those of the settings");
  }
  if (const std::string fault = checksum_fault(file_); !fault.empty()) refuse(path + ": " + fault + "; train again");
  weight_ = shape_.settings.weight_of(info_.tokens);
}

void GridUpdate::draw_noise() {
  if (shape_.noise == 0) return;
  noise_.emplace(shape_.noise);
  random_bytes(key_.data(), key_.size());
}

void GridUpdate::read(size_t start, size_t count, uint32_t* values) const {
  const unsigned char* data = file_.data(*file_.find(kCodes));
  const auto codes = static_cast<size_t>(shape_.codes());
  const size_t coded = start < codes ? std::min(count, codes - start) : 0;
  const auto weight = static_cast<int32_t>(weight_);
  for (size_t i = 0; i < coded; ++i) {
    int16_t code = 0;
    if (shape_.settings.bits <= 8) {
      code = static_cast<int8_t>(data[start + i]);
    } else {
      std::memcpy(&code, data + (start + i) * sizeof code, sizeof code);
    }
    values[i] = static_cast<uint32_t>(code * weight);
  }
  if (noise_) noise_->add(key_, start, coded, values);
  if (coded < count) values[coded] = static_cast<uint32_t>(weight_);
}

void decode_grid(const int32_t* sums, const GridShape& shape, const GridInfo& info, double divisor, ThreadPool& pool,
                 float* deltas) {
  const auto columns = static_cast<size_t>(shape.columns), sent = static_cast<size_t>(shape.sent);
  const auto scale = static_cast<float>(shape.step * static_cast<double>(shape.settings.support) / (64 * divisor));
  const uint64_t stream = sign_stream(info);
  const KernelSet& kernels = kernel_set();
  const size_t tiles = (columns + kSide - 1) / kSide;
  std::vector<float> scratch(static_cast<size_t>(pool.threads()) * kSide * kBlock);
  pool.for_each(static_cast<int64_t>(tiles), [&](int64_t tile, int thread) {
    const size_t first = static_cast<size_t>(tile) * kSide, some = std::min(kSide, columns - first);
    float* blocks = scratch.data() + static_cast<size_t>(thread) * kSide * kBlock;
    uint64_t signs[kWords];
    for (size_t i = 0; i < some; ++i) {
      float* x = blocks + i * kBlock;
      for (size_t at = 0; at < sent; ++at) x[at] = scale * static_cast<float>(sums[(first + i) * sent + at]);
      std::fill(x + sent, x + kRows, 0.0f);
      read_signs(stream, first + i, signs);
      kernels.hadamard(kRows, x);
      kernels.change_signs(kRows, signs, x);
    }
    for (size_t r = 0; r < kRows; ++r) {
      for (size_t i = 0; i < some; ++i) deltas[r * columns + first + i] = blocks[i * kBlock + r];
    }
  });
}

}  // namespace phonograd
