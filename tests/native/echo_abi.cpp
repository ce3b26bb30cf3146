// A C ABI that answers with what it was told: for tests of the Python side. Built by test_library.py.
#include <stdio.h>
#include <string.h>

#include "phonograd.h"

#ifndef ECHO_ABI_VERSION
#define ECHO_ABI_VERSION PG_ABI_VERSION
#endif

struct pg_engine {
  char plan[512];
  float weights[12];
  int32_t steps;
};

struct pg_graph {
  char bytes[64];
  size_t size;
  float rate;
};

namespace {
thread_local char last[256] = "";
int open_handles = 0;

// A folder or model "fail-N" fails with status N.
pg_status failed(const char* name) {
  const char* wanted = strstr(name, "fail-");
  int status = 0;
  if (wanted == nullptr || sscanf(wanted, "fail-%d", &status) != 1) return PG_OK;
  snprintf(last, sizeof last, "%s: status %d expected", name, status);
  return status;
}

pg_status closed() {
  snprintf(last, sizeof last, "handle: one that is open expected, found NULL");
  return PG_USAGE;
}
}  // namespace

int32_t pg_abi_version(void) {
  return ECHO_ABI_VERSION;
}
const char* pg_last_error(void) {
  return last;
}
const char* pg_cpu_info(void) {
  return "{\"features\": [\"avx2\"], \"cores\": 2, \"kernels\": [\"avx2\", \"portable\"], \"bf16\": null}";
}

pg_status pg_engine_open(const char* folder, const char* weights, const pg_options* options, pg_engine** engine) {
  if (const pg_status status = failed(folder)) return status;
  pg_engine* made = new pg_engine();
  snprintf(made->plan, sizeof made->plan, "%s|%s|threads %d pin %d fuse %d precision %d seed %llu kernels %s", folder,
           weights ? weights : "-", options->threads, options->pin_threads, options->fuse, options->precision,
           static_cast<unsigned long long>(options->seed), options->kernels ? options->kernels : "-");
  for (int i = 0; i < 12; ++i) made->weights[i] = static_cast<float>(i);
  ++open_handles;
  *engine = made;
  return PG_OK;
}

pg_status pg_engine_open_sampled(const char*, const char*, const pg_options*, const int64_t*, const float*, int64_t,
                                 pg_engine**) {
  return closed();
}

void pg_engine_close(pg_engine* engine) {
  open_handles -= engine != nullptr;
  delete engine;
}

pg_status pg_engine_full_batch(pg_engine* engine) {
  return engine == nullptr ? closed() : PG_OK;
}

pg_status pg_engine_finish_full_batch(pg_engine* engine, float) {
  return engine == nullptr ? closed() : PG_OK;
}

pg_status pg_engine_reset(pg_engine* engine) {
  if (engine == nullptr) return closed();
  engine->steps = 0;
  return PG_OK;
}

// The loss says what came over: steps since reset, the second token, the last target of [2,3], the learning rate.
pg_status pg_engine_step(pg_engine* engine, const int64_t* tokens, const int64_t* targets, float learning_rate,
                         float* loss) {
  if (engine == nullptr) return closed();
  ++engine->steps;
  engine->weights[0] += 100;
  *loss = static_cast<float>(1000 * engine->steps + 100 * tokens[1] + 10 * targets[5]) + learning_rate;
  return PG_OK;
}

pg_status pg_engine_logits(pg_engine* engine, const int64_t* tokens, int64_t T, int64_t B, float* scores) {
  if (engine == nullptr) return closed();
  for (int64_t row = 0; row < T * B; ++row) {
    for (int64_t word = 0; word < 4; ++word) scores[4 * row + word] = static_cast<float>(10 * tokens[row] + word);
  }
  return PG_OK;
}

int32_t pg_engine_parameters(const pg_engine*) {
  return open_handles;
}  // one tensor, if one engine is open

pg_status pg_engine_parameter(const pg_engine* engine, int32_t, const char** name, int64_t* elements,
                              const float** data) {
  *name = "embedding.weight";
  *elements = 12;
  *data = engine->weights;
  return PG_OK;
}

pg_status pg_engine_plan(pg_engine* engine, const char** text) {
  *text = engine->plan;
  return PG_OK;
}

pg_status pg_engine_write_update(pg_engine*, const pg_update_options* options, const char* path, pg_written* written) {
  snprintf(written->sha256, sizeof written->sha256, "%s|%s|%s|%llu|%llu|%llu|%lld", path, options->base_sha256,
           options->codec, static_cast<unsigned long long>(options->round),
           static_cast<unsigned long long>(options->tokens), static_cast<unsigned long long>(options->seed),
           static_cast<long long>(options->steps));
  written->nbytes = static_cast<int64_t>(options->size + written->size);
  return PG_OK;
}

pg_status pg_engine_phases(pg_engine*, const char** json) {
  *json = "{\"lstm\": 0.25, \"output\": 0.5}";
  return PG_OK;
}

pg_status pg_predictor_open(const char*, const char*, const pg_options*, pg_predictor**) {
  return PG_BUG;
}
void pg_predictor_close(pg_predictor*) {}
pg_status pg_predictor_reset(pg_predictor*) {
  return PG_BUG;
}
pg_status pg_predictor_feed(pg_predictor*, const char*) {
  return PG_BUG;
}
pg_status pg_predictor_suggest(pg_predictor*, const char*, int32_t, pg_suggestion*, int32_t*) {
  return PG_BUG;
}
pg_status pg_predictor_scores(pg_predictor*, float*) {
  return PG_BUG;
}
pg_status pg_predictor_state(const pg_predictor*, const void**, size_t*) {
  return PG_BUG;
}
pg_status pg_predictor_restore(pg_predictor*, const void*, size_t) {
  return PG_BUG;
}
pg_status pg_quantize(const char*, const char*, const char*) {
  return PG_BUG;
}
pg_status pg_rotate(float*, int64_t, int64_t, int64_t, const uint64_t*, int32_t, int32_t) {
  return PG_BUG;
}

pg_status pg_state_open(pg_engine*, const char*, const int64_t*, int64_t, double, int32_t, pg_state**) {
  return closed();
}
pg_status pg_state_open_sampled(pg_engine*, const char*, const int64_t*, int64_t, double, int32_t, int64_t, uint64_t,
                                pg_state**) {
  return closed();
}
void pg_state_close(pg_state*) {}
pg_status pg_state_resume(pg_state*, double*, double*, int64_t, int64_t*) {
  return closed();
}
pg_status pg_state_save(pg_state*, const double*, const double*, int64_t) {
  return closed();
}
pg_status pg_state_discard(pg_state*) {
  return closed();
}

pg_status pg_graph_open(const char* model, const char*, const char*, const pg_options*, pg_graph** graph) {
  if (const pg_status status = failed(model)) return status;
  ++open_handles;
  *graph = new pg_graph();
  return PG_OK;
}

void pg_graph_close(pg_graph* graph) {
  open_handles -= graph != nullptr;
  delete graph;
}

pg_status pg_graph_set(pg_graph* graph, const char* name, const void* data, size_t bytes) {
  if (const pg_status status = failed(name)) return status;
  memcpy(graph->bytes, data, bytes);
  graph->size = bytes;
  return PG_OK;
}

pg_status pg_graph_run(pg_graph* graph, float learning_rate) {
  if (graph == nullptr) return closed();
  graph->rate = learning_rate;
  return PG_OK;
}

// What was set, as elements of the size that the name ends in, in rows of two; "rate" is the learning rate.
pg_status pg_graph_get(pg_graph* graph, const char* name, const void** data, size_t* bytes, int64_t* shape,
                       int32_t* rank) {
  if (strcmp(name, "rate") == 0) {
    *data = &graph->rate;
    *bytes = 4;
    *rank = 0;
    return PG_OK;
  }
  int size = 4;
  sscanf(name, "values-%d", &size);
  *data = graph->bytes;
  *bytes = graph->size;
  *rank = 2;
  shape[0] = static_cast<int64_t>(graph->size) / size / 2;
  shape[1] = 2;
  return PG_OK;
}
