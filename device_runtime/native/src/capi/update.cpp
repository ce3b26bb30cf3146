// pg_update_write: updates of a caller's weights.
#include <string>
#include <vector>

#include "base/files.h"
#include "capi/border.h"
#include "capi/sized.h"
#include "capi/update_handles.h"
#include "formats/frozen.h"
#include "formats/sha256.h"
#include "formats/utf8.h"
#include "masked/grid.h"
#include "phonograd.h"
#include "round/outputs.h"

using namespace phonograd;

namespace {

constexpr size_t kFirstOptions = sizeof(pg_update_options);

UpdateInfo info_of(const pg_update_options* given) {
  const pg_update_options options = border::options_of(given, kFirstOptions, "pg_update_options");
  require_identity(options.base_sha256, "base_sha256");
  border::require(options.steps == 0 || options.steps == 1,
                  "steps: " + std::to_string(options.steps) + "; expected 0 or 1");
  const std::string codec = options.codec == nullptr ? RoundSettings{}.codec : options.codec;
  return {options.base_sha256, options.round, options.tokens, codec, options.seed, options.steps == 1};
}

// The caller's tensors, in the base's order.
std::vector<TensorOut> trained_of(const pg_weights& base, const float* const* tensors) {
  std::vector<TensorOut> trained;
  for (const TensorSpec& spec : base.file.specs()) {
    const float* values = tensors[trained.size()];
    border::require(values != nullptr || base.frozen.count(spec.name) != 0, "tensor " + spec.name + ": NULL");
    trained.push_back({spec.name, spec.dtype, spec.shape, values});
  }
  return trained;
}

}  // namespace

void require_identity(const char* sha256, const char* name) {
  border::require(sha256 != nullptr, std::string(name) + ": NULL");
  border::require(is_sha256(sha256), std::string(name) + ": 64 lower-case hexadecimal digits expected, found " +
                                         quote_text(std::string(sha256).substr(0, 80)));
}

void tell_written(const Written& found, pg_written* written) {
  pg_written facts{};
  facts.nbytes = static_cast<int64_t>(found.bytes);
  found.sha256.copy(facts.sha256, sizeof facts.sha256 - 1);
  border::fill_in(facts, kFirstWritten, "pg_written", written);
}

extern "C" {

pg_status pg_update_write(const pg_weights* base, const float* const* tensors, const pg_update_options* options,
                          const char* path, pg_written* written) {
  return border::run_guarded([&] {
    border::require(base != nullptr && tensors != nullptr && path != nullptr, "base, tensors or path: NULL");
    const UpdateInfo info = info_of(options);
    border::require_size(written, kFirstWritten, "pg_written");
    const std::vector<TensorOut> trained = trained_of(*base, tensors);
    AtomicFile file(path);
    if (options->masked == nullptr) return tell_written(write_update(file, base->file, trained, info), written);
    const GridInfo grid{options->masked, info.base_sha256, static_cast<int64_t>(info.tokens), info.one_step};
    tell_written(write_grid(file, base->file, trained, grid), written);
  });
}

}  // extern "C"
