// An epoch and a prediction through the C ABI, as an app has them: FOLDER STATE. An attempt prints a line, `STATUS
// MESSAGE` or `0 SUM` of the scores. A second one follows a failure: the prediction by the same handles, or all by new
// ones from what the state has saved.
#include <cstdint>
#include <cstdio>
#include <vector>

#include "phonograd.h"

namespace {

constexpr int64_t kWords = 600, kTokens = 150, kWindow = 15, kSteps = 10;  // minibatch 3, BPTT 5

class Session {
 public:
  ~Session() {
    pg_state_close(state_);
    pg_engine_close(engine_);
  }

  // The status of the first call that fails.
  pg_status train(const char* folder, const char* place) {
    pg_options options{2, 0, 1, 0, 7, nullptr};
    std::vector<int64_t> stream;
    for (int64_t i = 0; i < kTokens; ++i) stream.push_back(i * 31 % kWords);
    double losses[kSteps], seconds[kSteps];
    int64_t done = 0;
    if (const pg_status failed = pg_engine_open(folder, nullptr, &options, &engine_)) return failed;
    if (const pg_status failed = pg_state_open(engine_, place, stream.data(), kTokens, 0.5, 0, &state_)) return failed;
    if (const pg_status failed = pg_engine_reset(engine_)) return failed;
    if (const pg_status failed = pg_state_resume(state_, losses, seconds, kSteps, &done)) return failed;
    for (; done < kSteps; ++done) {
      const int64_t* tokens = stream.data() + done * kWindow;
      float loss = 0;
      if (const pg_status failed = pg_engine_step(engine_, tokens, tokens, 0.5f, &loss)) return failed;
      losses[done] = static_cast<double>(loss);
      seconds[done] = 1;
      if (const pg_status failed = pg_state_save(state_, losses, seconds, done + 1)) return failed;
    }
    return PG_OK;
  }

  // Two windows of the same size, the second with the states that the first left, and one of another size.
  pg_status predict(double* sum) {
    const int64_t tokens[] = {5, 9, 2, 4};
    float scores[2 * kWords];
    const char* text = nullptr;
    *sum = 0;
    if (const pg_status failed = pg_engine_reset(engine_)) return failed;
    if (const pg_status failed = pg_engine_logits(engine_, tokens, 1, 1, scores)) return failed;
    if (const pg_status failed = pg_engine_logits(engine_, tokens + 1, 1, 1, scores)) return failed;
    if (const pg_status failed = pg_engine_logits(engine_, tokens + 2, 2, 1, scores)) return failed;
    for (const float score : scores) *sum += static_cast<double>(score);
    return pg_engine_plan(engine_, &text);
  }

 private:
  pg_engine* engine_ = nullptr;
  pg_state* state_ = nullptr;
};

void print(pg_status status, double sum) {
  if (status == PG_OK) {
    std::printf("0 %a\n", sum);
  } else {
    std::printf("%d %s\n", status, pg_last_error());
  }
}

// Whether the epoch was trained.
bool attempt(const char* folder, const char* place) {
  try {
    Session session;
    pg_status status = session.train(folder, place);
    const bool trained = status == PG_OK;
    double sum = 0;
    for (int attempts = 0; attempts < 2; ++attempts) {
      if (trained) status = session.predict(&sum);
      print(status, sum);
      if (status == PG_OK || !trained) break;
    }
    return trained;
  } catch (...) {
    std::printf("%d the tool's own memory\n", PG_OUT_OF_MEMORY);
    return false;
  }
}

}  // namespace

int main(int, char** arguments) {
  static char out[4 * 4096];
  std::setvbuf(stdout, out, _IOFBF, sizeof out);
  if (!attempt(arguments[1], arguments[2])) attempt(arguments[1], arguments[2]);
}
