// pg_state: resumable training for callers that run the steps themselves.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "capi/border.h"
#include "capi/handles.h"
#include "phonograd.h"
#include "training/state.h"

using namespace phonograd;

struct pg_state {
  pg_state(pg_engine& engine, const char* path, const std::vector<int64_t>& stream, double learning_rate, bool restart,
           SampleDraw draw)
      : folder(path),
        state(folder, engine.engine, engine.options, base_sha256(engine.engine), stream, learning_rate, draw) {
    if (restart) folder.discard();
  }

  StateFolder folder;
  TrainingState state;
};

extern "C" {

pg_status pg_state_open(pg_engine* engine, const char* folder, const int64_t* stream, int64_t tokens,
                        double learning_rate, int32_t restart, pg_state** state) {
  return pg_state_open_sampled(engine, folder, stream, tokens, learning_rate, restart, 0, 0, state);
}

pg_status pg_state_open_sampled(pg_engine* engine, const char* folder, const int64_t* stream, int64_t tokens,
                                double learning_rate, int32_t restart, int64_t drawn, uint64_t sample_seed,
                                pg_state** state) {
  return border::guarded([&] {
    border::require(engine != nullptr && folder != nullptr && stream != nullptr && state != nullptr,
                    "an argument is NULL");
    border::require(tokens >= 1, "tokens: " + std::to_string(tokens) + "; expected at least 1");
    *state = nullptr;
    const std::vector<int64_t> ids(stream, stream + tokens);
    *state = new pg_state(*engine, folder, ids, learning_rate, restart != 0, {drawn, sample_seed});
  });
}

void pg_state_close(pg_state* state) {
  delete state;
}

pg_status pg_state_resume(pg_state* state, double* losses, double* step_seconds, int64_t capacity, int64_t* steps) {
  return border::guarded([&] {
    border::require(state != nullptr && losses != nullptr && step_seconds != nullptr && steps != nullptr,
                    "an argument is NULL");
    const Progress progress = state->state.resume();
    *steps = static_cast<int64_t>(progress.losses.size());
    if (*steps > capacity)
      throw Error(Status::state, "training state: " + std::to_string(*steps) + " steps saved, expected at most " +
                                     std::to_string(capacity) + "; discard it with `restart`");
    std::copy(progress.losses.begin(), progress.losses.end(), losses);
    std::copy(progress.step_seconds.begin(), progress.step_seconds.end(), step_seconds);
  });
}

pg_status pg_state_save(pg_state* state, const double* losses, const double* step_seconds, int64_t steps) {
  return border::guarded([&] {
    border::require(state != nullptr && losses != nullptr && step_seconds != nullptr && steps >= 0,
                    "an argument is NULL, or steps is below 0");
    Progress progress;
    progress.losses.assign(losses, losses + steps);
    progress.step_seconds.assign(step_seconds, step_seconds + steps);
    state->state.save(std::move(progress));
  });
}

pg_status pg_state_discard(pg_state* state) {
  return border::guarded([&] {
    border::require(state != nullptr, "state: NULL");
    state->folder.discard();
  });
}

}  // extern "C"
