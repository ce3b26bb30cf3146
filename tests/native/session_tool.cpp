// An epoch and a prediction through the C ABI, as an app has them: FOLDER STATE. An attempt prints a line, `STATUS
// MESSAGE` or `0 SUM` of the scores. A second one follows a failure: the prediction by the same handles, or all by new
// ones from what the state has saved.
#include <cstdint>
#include <cstdio>
#include <vector>

#include "phonograd.h"

namespace {

constexpr int64_t kWords = 600, kTokens = 150;  // minibatch 3, BPTT 5

class Session {
 public:
  ~Session() {
    pg_round_close(round_);
    pg_engine_close(engine_);
  }

  // The status of the first call that fails.
  pg_status train(const char* folder, const char* place) {
    std::vector<int64_t> stream;
    for (int64_t i = 0; i < kTokens; ++i) stream.push_back(i * 31 % kWords);
    const uint64_t seed = 7;
    int32_t finished = 0;
    pg_round_options options{};
    options.size = sizeof options;
    options.folder = folder;
    options.stream = stream.data();
    options.stream_tokens = kTokens;
    options.learning_rate = 0.5;
    options.seed = &seed;
    options.state = place;
    options.save_every = 1;
    pg_options plain{};
    plain.size = sizeof plain;
    if (const pg_status failed = pg_round_open(&options, &round_)) return failed;
    if (const pg_status failed = pg_round_train(round_, nullptr, nullptr, &finished)) return failed;
    return pg_engine_open(folder, nullptr, &plain, &engine_);
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
  pg_round* round_ = nullptr;
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
