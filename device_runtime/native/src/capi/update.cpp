// pg_engine_write_update: the update of an engine's weights.
#include <cstring>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/places.h"
#include "capi/border.h"
#include "capi/handles.h"
#include "capi/sized.h"
#include "formats/sha256.h"
#include "formats/utf8.h"
#include "phonograd.h"
#include "round/outputs.h"

using namespace phonograd;

namespace {

constexpr size_t kFirstOptions = sizeof(pg_update_options), kFirstWritten = sizeof(pg_written);

UpdateInfo info_of(const pg_update_options& options) {
  border::require(options.base_sha256 != nullptr, "base_sha256: NULL");
  border::require(is_sha256(options.base_sha256),
                  "base_sha256: 64 lower-case hexadecimal digits expected, found " + quoted(options.base_sha256));
  border::require(options.steps == 0 || options.steps == 1,
                  "steps: " + std::to_string(options.steps) + "; expected 0 or 1");
  const std::string codec = options.codec == nullptr ? RoundSettings{}.codec : options.codec;
  return {options.base_sha256, options.round, options.tokens, codec, options.seed, options.steps == 1};
}

}  // namespace

extern "C" pg_status pg_engine_write_update(pg_engine* engine, const pg_update_options* options, const char* path,
                                            pg_written* written) {
  return border::guarded([&] {
    border::require(engine != nullptr && path != nullptr, "engine or path: NULL");
    const UpdateInfo info = info_of(border::options_of(options, kFirstOptions, "pg_update_options"));
    border::require_size(written, kFirstWritten, "pg_written");
    std::vector<std::string> inputs = engine->engine.manifest().files;
    inputs.push_back(engine->engine.weights().path());
    require_outputs({path}, inputs);
    engine->engine.scatter();
    AtomicFile file(path);
    const Written found = write_trained_update(engine->engine, info, file);
    pg_written facts{};
    facts.nbytes = static_cast<int64_t>(found.bytes);
    std::memcpy(facts.sha256, found.sha256.c_str(), sizeof facts.sha256);
    border::fill_in(facts, kFirstWritten, "pg_written", written);
  });
}
