// pg_link_write: links from one model to the next.
#include "update/link.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "base/files.h"
#include "capi/border.h"
#include "capi/sized.h"
#include "capi/update_handles.h"
#include "phonograd.h"
#include "update/rotation.h"

using namespace phonograd;

namespace {

constexpr size_t kFirstOptions = sizeof(pg_link_options);

LinkedModel write_lossy(const pg_weights& base, const pg_weights& model, const pg_link_options& options,
                        const char* path, const UpdateInfo& info) {
  border::require(options.result != nullptr, "result: NULL; expected a path");
  border::require(options.rows >= 1, "rows: " + std::to_string(options.rows) + "; expected at least 1");
  border::require(std::find(std::begin(kBits), std::end(kBits), options.bits) != std::end(kBits),
                  "bits: " + std::to_string(options.bits) + "; expected 1, 2 or 4");
  const TensorFile* residual = options.residual == nullptr ? nullptr : &options.residual->file;
  const LossyLink wanted{model.file, residual, static_cast<size_t>(options.rows), options.bits};
  return write_lossy_link(path, options.result, base.file, wanted, info);
}

Written write_lossless(const pg_weights& base, const pg_weights& model, const pg_link_options& options,
                       const char* path, const UpdateInfo& info) {
  require_identity(options.model_sha256, "model_sha256");
  border::require(options.residual == nullptr && options.result == nullptr,
                  "residual or result: expected NULL of codec rows-f32");
  AtomicFile file(path);
  return write_lossless_link(file, base.file, model.file, info, options.model_sha256);
}

}  // namespace

extern "C" pg_status pg_link_write(const pg_weights* base, const pg_weights* model, const pg_link_options* options,
                                   const char* path, pg_written* written, pg_written* result_written) {
  return border::run_guarded([&] {
    border::require(base != nullptr && model != nullptr && path != nullptr, "base, model or path: NULL");
    const pg_link_options known = border::options_of(options, kFirstOptions, "pg_link_options");
    border::require_size(written, kFirstWritten, "pg_written");
    require_identity(known.base_sha256, "base_sha256");
    border::require(known.codec != nullptr, "codec: NULL; expected rows-f32 or top-rows");
    const std::string codec = known.codec;
    const UpdateInfo info{known.base_sha256, known.round, 1, codec, known.seed};
    if (codec == kRowsF32.name) return tell_written(write_lossless(*base, *model, known, path, info), written);
    border::require(codec == kTopRows.name, "codec: expected rows-f32 or top-rows");
    border::require_size(result_written, kFirstWritten, "pg_written");
    const LinkedModel made = write_lossy(*base, *model, known, path, info);
    tell_written(made.link, written);
    tell_written(made.model, result_written);
  });
}
