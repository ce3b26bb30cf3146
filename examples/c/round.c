/*
 * A phone's part in a round, in C: train on a user's text mixed with general text, write the trained weights and the
 * update for the server, and suggest words with these weights.
 *
 *   round ARTIFACTS USER GENERAL STATE WEIGHTS UPDATE
 *
 * Ctrl-C stops it with the state saved; the same command resumes. On arm64 Linux, from the root of a checkout:
 *
 *   phonograd build-phone --library libphonograd.so
 *   cc -I device_runtime/native/include examples/c/round.c libphonograd.so -Wl,-rpath,'$ORIGIN' -o round
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "phonograd.h"

static pg_round* open_round; /* for the signal handler */

static void stop(int number) {
  (void)number;
  pg_round_cancel(open_round);
}

static void show(void* context, const pg_progress* progress) {
  (void)context;
  printf("step %lld of %lld: loss %.3f\n", (long long)progress->step, (long long)progress->steps, progress->loss);
  fflush(stdout); /* each step as it happens, also into a pipe */
}

/* The message of a failure; returns its status, which is also the exit code of phonograd's commands. */
static int failed(pg_status status) {
  fprintf(stderr, "round: %s\n", pg_last_error());
  return status;
}

/* The three most probable first words of a message. */
static int suggest(const char* folder, const char* weights) {
  const pg_options options = {.size = sizeof options, .threads = 1};
  pg_predictor* predictor = NULL;
  pg_suggestion words[3];
  int32_t count = 0;
  pg_status status = pg_predictor_open(folder, weights, &options, &predictor);
  if (status == PG_OK) status = pg_predictor_suggest(predictor, "", NULL, 3, words, &count);
  if (status != PG_OK) failed(status);
  for (int32_t i = 0; i < count; ++i) printf("%s: %.1f %%\n", words[i].word, 100 * words[i].probability);
  pg_predictor_close(predictor);
  return status;
}

/* Whether the round finished is in *finished. */
static int train(pg_round* round, int32_t* finished) {
  pg_model model = {.size = sizeof model};
  pg_status status = pg_round_model(round, &model);
  if (status != PG_OK) return failed(status);
  printf("V %lld, T %lld, B %lld, %lld bytes of weights, kernels %s\n", (long long)model.V, (long long)model.T,
         (long long)model.B, (long long)model.parameter_bytes, model.kernels);

  open_round = round;
  signal(SIGINT, stop);
  signal(SIGTERM, stop);
  status = pg_round_train(round, show, NULL, finished);
  signal(SIGINT, SIG_DFL); /* the round may not be cancelled once it is closed */
  signal(SIGTERM, SIG_DFL);
  if (status != PG_OK) return failed(status);
  if (!*finished) {
    puts("cancelled; the same command resumes");
    return 0;
  }

  const char* report = NULL;
  status = pg_round_report(round, &report);
  if (status != PG_OK) return failed(status);
  puts(report);
  status = pg_round_discard_state(round);
  return status == PG_OK ? 0 : failed(status);
}

int main(int count, char** words) {
  if (count != 7) {
    fputs("usage: round ARTIFACTS USER GENERAL STATE WEIGHTS UPDATE\n", stderr);
    return PG_USAGE;
  }
  if (pg_abi_version() != PG_ABI_VERSION) {
    fprintf(stderr, "round: built for version %d of phonograd's ABI, found %d; build it again\n", PG_ABI_VERSION,
            pg_abi_version());
    return PG_USAGE;
  }
  const uint64_t seed = 5; /* an app gives the phone's name at the server instead */
  pg_round_options options;
  memset(&options, 0, sizeof options); /* zero is every field's default */
  options.size = sizeof options;
  options.folder = words[1];
  options.user.path = words[2];
  options.rehearsal.path = words[3];
  options.state = words[4];
  options.out = words[5];
  options.update = words[6];
  options.codec = "delta-int8";
  options.seed = &seed;
  options.save_every = 2;

  pg_round* round = NULL;
  const pg_status status = pg_round_open(&options, &round);
  if (status != PG_OK) return failed(status);
  int32_t finished = 0;
  const int code = train(round, &finished);
  pg_round_close(round);
  return code == 0 && finished ? suggest(options.folder, options.out) : code;
}
