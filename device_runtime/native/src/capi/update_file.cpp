// pg_weights, pg_update and pg_tiles: updates read tile by tile.
#include <algorithm>
#include <cmath>
#include <string>

#include "capi/border.h"
#include "capi/sized.h"
#include "capi/update_handles.h"
#include "formats/frozen.h"
#include "phonograd.h"

using namespace phonograd;

namespace {

constexpr size_t kFirstFacts = sizeof(pg_update_facts);

void check_values(const UpdateReader& update, const pg_weights& base) {
  std::vector<float> values;
  std::vector<TileRun> runs;
  for (const TensorSpec& tensor : base.file.specs()) {
    if (base.frozen.count(tensor.name) != 0) continue;
    values.resize(std::max(values.size(), std::min<size_t>(PG_TILE, tensor.elements())));
    Decoder decoder(update, tensor, reader_of(base.file, tensor), PG_TILE);
    while (decoder.next(values.data(), values.size(), runs)) check_finite(update, tensor, runs, values.data());
  }
}

void tell(const std::vector<DeltaNorms>& all, double* norms) {
  for (const DeltaNorms& found : all) {
    *norms++ = found.largest;
    *norms++ = found.sum;
    *norms++ = std::sqrt(found.squares);
  }
}

}  // namespace

pg_weights::pg_weights(const std::string& path, const std::string& name)
    : file(path, Status::weights, std::nullopt, name) {
  for (const TensorSpec& spec : file.specs()) {
    if (spec.dtype == "F32") continue;
    throw Error(Status::weights, file.path() + ": tensor " + describe(spec.name, spec.dtype, spec.shape) +
                                     ": F32 expected; export the model again");
  }
  frozen = frozen_in(file.path(), file.metadata(), file.specs());
}

extern "C" {

pg_status pg_weights_open(const char* path, int32_t descriptor, pg_weights** weights) {
  return border::run_guarded([&] {
    border::require(path != nullptr && weights != nullptr, "path or weights: NULL");
    *weights = nullptr;
    const std::string place = descriptor < 0 ? path : path_of(descriptor);
    *weights = new pg_weights(place, path);
  });
}

void pg_weights_close(pg_weights* weights) {
  delete weights;
}

pg_status pg_update_open(const char* path, int64_t start, pg_update** update) {
  return border::run_guarded([&] {
    border::require(path != nullptr && update != nullptr, "path or update: NULL");
    *update = nullptr;
    *update = new pg_update{UpdateReader(path, start < 0 ? std::nullopt : std::optional<size_t>(start))};
  });
}

void pg_update_close(pg_update* update) {
  delete update;
}

pg_status pg_update_about(const pg_update* update, pg_update_facts* facts) {
  return border::run_guarded([&] {
    border::require(update != nullptr, "update: NULL");
    const UpdateReader& reader = update->reader;
    const UpdateInfo& info = reader.info();
    pg_update_facts found{};
    found.base_sha256 = info.base_sha256.c_str();
    found.codec = reader.codec().name;
    found.result_sha256 = reader.is_link() ? reader.result_sha256().c_str() : nullptr;
    found.round = info.round;
    found.tokens = info.tokens;
    found.seed = info.seed;
    found.steps = info.one_step ? 1 : 0;
    found.nbytes = static_cast<int64_t>(reader.file().end() - reader.file().begin());
    border::fill_in(found, kFirstFacts, "pg_update_facts", facts);
  });
}

pg_status pg_update_check(const pg_update* update, const pg_weights* base) {
  return border::run_guarded([&] {
    border::require(update != nullptr && base != nullptr, "update or base: NULL");
    update->reader.check_parts(base->file.specs(), base->frozen);
    check_values(update->reader, *base);
  });
}

pg_status pg_tiles_open(const pg_update* update, const pg_weights* base, const pg_weights* onto, const char* tensor,
                        pg_tiles** tiles) {
  return border::run_guarded([&] {
    border::require(update != nullptr && base != nullptr && tensor != nullptr && tiles != nullptr,
                    "update, base, tensor or tiles: NULL");
    *tiles = nullptr;
    const TensorSpec& spec = base->file.at(tensor);
    auto opened = std::make_unique<pg_tiles>();
    opened->least = std::min<size_t>(PG_TILE, spec.elements());
    if (base->frozen.count(tensor) == 0) {
      const ReadBase other = onto == nullptr ? ReadBase() : reader_of(onto->file, spec);
      opened->decoder.emplace(update->reader, spec, reader_of(base->file, spec), PG_TILE, other);
    }
    *tiles = opened.release();
  });
}

void pg_tiles_close(pg_tiles* tiles) {
  delete tiles;
}

pg_status pg_tiles_next(pg_tiles* tiles, float* values, int64_t capacity, const int64_t** runs, int64_t* count) {
  return border::run_guarded([&] {
    border::require(tiles != nullptr && runs != nullptr && count != nullptr, "tiles, runs or count: NULL");
    *count = 0;
    *runs = nullptr;
    border::require(values != nullptr || tiles->least == 0, "values: NULL");
    border::require(capacity >= 0 && static_cast<size_t>(capacity) >= tiles->least,
                    "capacity: " + std::to_string(capacity) + "; expected at least " + std::to_string(tiles->least));
    if (!tiles->decoder || !tiles->decoder->next(values, static_cast<size_t>(capacity), tiles->runs)) return;
    tiles->told.clear();
    for (const TileRun& run : tiles->runs) {
      tiles->told.push_back(static_cast<int64_t>(run.start));
      tiles->told.push_back(static_cast<int64_t>(run.count));
    }
    *runs = tiles->told.data();
    *count = static_cast<int64_t>(tiles->runs.size());
  });
}

pg_status pg_decoded_open(const pg_update* update, const pg_weights* base, const pg_weights* onto, int64_t held,
                          pg_decoded** decoded) {
  return border::run_guarded([&] {
    border::require(update != nullptr && base != nullptr && decoded != nullptr, "update, base or decoded: NULL");
    border::require(held >= 0, "held: expected at least 0");
    *decoded = nullptr;
    update->reader.check_parts(base->file.specs(), base->frozen);
    const TensorFile* other = onto == nullptr ? nullptr : &onto->file;
    *decoded = new pg_decoded{{update->reader, base->file, base->frozen, other, static_cast<size_t>(held)}};
  });
}

void pg_decoded_close(pg_decoded* decoded) {
  delete decoded;
}

pg_status pg_decoded_measure(pg_decoded* decoded, double* norms) {
  return border::run_guarded([&] {
    border::require(decoded != nullptr && norms != nullptr, "decoded or norms: NULL");
    tell(decoded->update.measure(), norms);
  });
}

pg_status pg_decoded_add(pg_decoded* decoded, double steps_per_unit, int64_t weight, const double* scales,
                         int64_t* const* sums) {
  return border::run_guarded([&] {
    border::require(decoded != nullptr && sums != nullptr, "decoded or sums: NULL");
    border::require(weight != 0, "weight: 0; expected at least 1, or minus that of an update that was added");
    decoded->update.add(steps_per_unit, weight, scales, sums);
  });
}

pg_status pg_decoded_take(pg_decoded* decoded, double steps_per_unit, int64_t weight, double limit,
                          int64_t* const* sums, double* norms) {
  return border::run_guarded([&] {
    border::require(decoded != nullptr && sums != nullptr && norms != nullptr, "decoded, sums or norms: NULL");
    border::require(weight > 0, "weight: expected at least 1");
    border::require(limit * steps_per_unit <= 0x1p62, "limit: expected at most 2^62 / steps_per_unit");
    tell(decoded->update.take(steps_per_unit, weight, limit, sums), norms);
  });
}

}  // extern "C"
