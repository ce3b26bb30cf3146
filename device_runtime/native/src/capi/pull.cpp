// pg_pull: the next model from what was fetched.
#include "update/pull.h"

#include "capi/border.h"
#include "capi/sized.h"
#include "phonograd.h"

using namespace phonograd;

namespace {

constexpr size_t kFirstOptions = sizeof(pg_pull_options), kFirstPulled = sizeof(pg_pulled);

PullSettings settings_of(const pg_pull_options& options) {
  border::require(options.fetched != nullptr && options.sha256 != nullptr && options.out != nullptr,
                  "fetched, sha256 or out: NULL");
  return {options.fetched, options.base == nullptr ? "" : options.base, options.sha256, options.out};
}

}  // namespace

extern "C" pg_status pg_pull(const pg_pull_options* options, pg_pulled* pulled) {
  return border::run_guarded([&] {
    const pg_pull_options known = border::options_of(options, kFirstOptions, "pg_pull_options");
    border::require_size(pulled, kFirstPulled, "pg_pulled");
    const PullSettings settings = settings_of(known);
    pg_pulled facts{};
    border::fill_in(facts, kFirstPulled, "pg_pulled", pulled);
    const auto stop = [&known] { return known.stop != nullptr && known.stop(known.context) != 0; };
    if (const std::optional<Pulled> done = pull(settings, stop)) {
      facts.finished = 1;
      facts.bytes = static_cast<int64_t>(done->bytes);
      facts.links = done->links;
    }
    border::fill_in(facts, kFirstPulled, "pg_pulled", pulled);
  });
}
