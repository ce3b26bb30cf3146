// A user's own words through the C ABI: FOLDER FILE. Prints lines of a status and a message, or of 0 and what was
// found: learning, deleting and saving; then, whatever failed, the words of the store, the words suggested where it
// stopped, and the file's words; then all of it once more, and the file again. Last, the calls made before the first of
// these and after it.
#include <cstdio>
#include <initializer_list>

#include "phonograd.h"

// Of the call that is to fail: failing_calls.cpp.
extern "C" long calls_made();

namespace {

constexpr int32_t kMost = 1 << 14;
pg_suggestion suggestions[kMost];

// The status of the first call that fails.
pg_status learn(pg_predictor* predictor, pg_personal* personal) {
  int32_t deleted = 0, count = 0;
  for (const char* text : {"servus resi, pin 4711\n", "servus vroni", " pin 4711\npin 4711 w3\n"}) {
    if (const pg_status failed = pg_predictor_learn(predictor, text)) return failed;
    if (const pg_status failed = pg_predictor_suggest(predictor, "", nullptr, kMost, suggestions, &count))
      return failed;
  }
  if (const pg_status failed = pg_personal_delete(personal, "Resi", &deleted)) return failed;
  if (const pg_status failed = pg_personal_veto(personal, "Vroni")) return failed;
  return pg_personal_save(personal);
}

// Whether a call went well; prints its error if not.
bool good(pg_status status) {
  if (status != PG_OK) std::printf("%d %s\n", status, pg_last_error());
  return status == PG_OK;
}

void print_words(pg_personal* personal) {
  const char* words = "";
  if (good(pg_personal_list(personal, &words))) std::printf("0 %s\n", words);
}

void print_file(const char* path) {
  pg_personal* saved = nullptr;
  if (good(pg_personal_open(path, &saved))) print_words(saved);
  pg_personal_close(saved);
}

void print_suggestions(pg_predictor* predictor) {
  int32_t count = 0;
  pg_suggest_options plain{};
  plain.size = sizeof plain;
  plain.shift = PG_SHIFT_NONE;
  if (!good(pg_predictor_suggest(predictor, "", &plain, kMost, suggestions, &count))) return;
  for (int32_t at = 0; at < count; ++at) {
    std::printf("%s[\"%s\",%g]", at == 0 ? "0 [" : ",", suggestions[at].word, suggestions[at].probability);
  }
  std::printf("]\n");
}

}  // namespace

int main(int, char** arguments) {
  static char out[1 << 20];
  std::setvbuf(stdout, out, _IOFBF, sizeof out);
  pg_options options{};
  options.size = sizeof options;
  options.threads = 1;
  pg_predictor* predictor = nullptr;
  pg_personal* personal = nullptr;
  if (pg_predictor_open(arguments[1], nullptr, &options, &predictor) != PG_OK) return 1;
  if (pg_personal_open(arguments[2], &personal) != PG_OK) return 1;
  if (pg_predictor_personal(predictor, personal) != PG_OK) return 1;
  const long before = calls_made();
  if (good(learn(predictor, personal))) std::printf("0 \n");
  const long after = calls_made();
  print_words(personal);
  print_suggestions(predictor);
  print_file(arguments[2]);
  if (good(learn(predictor, personal))) print_file(arguments[2]);
  std::printf("%ld %ld\n", before, after);
  pg_personal_close(personal);
  pg_predictor_close(predictor);
}
