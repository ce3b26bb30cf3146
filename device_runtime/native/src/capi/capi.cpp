// The C ABI: handles and statuses; no exception leaves it.
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "capi/border.h"
#include "capi/handles.h"
#include "capi/sized.h"
#include "engine/running_engine.h"
#include "phonograd.h"

using namespace phonograd;

namespace {

constexpr int64_t kMostCandidates = int64_t{1} << 28;  // no vocabulary is larger

}  // namespace

int threads_of(int32_t given) {
  border::require(given >= 0 && given <= kMaxThreads, "threads: " + std::to_string(given) + "; expected 1 to " +
                                                          std::to_string(kMaxThreads) + ", or 0 for the default");
  return given == 0 ? EngineOptions().threads : given;
}

EngineOptions engine_options_of(const pg_options* given) {
  const pg_options options = border::options_of(given, sizeof(pg_options), "pg_options");
  border::require(options.precision >= 0 && options.precision <= 2,
                  "precision: " + std::to_string(options.precision) + "; expected 0, 1 or 2");
  EngineOptions result;
  result.threads = threads_of(options.threads);
  result.pin_threads = options.pin_threads != 0;
  result.fuse = options.unfused == 0;
  result.precision = static_cast<Precision>(options.precision);
  result.seed = options.seed;
  if (options.kernels != nullptr) result.kernels = options.kernels;
  if (options.teacher != nullptr) result.teacher = options.teacher;
  return result;
}

void describe_model(const Engine& engine, const EngineOptions& options, const std::string& kernels, pg_model* model) {
  const Manifest& manifest = engine.manifest();
  pg_model facts{};
  facts.V = manifest.vocabulary;
  facts.E = manifest.embedding;
  facts.H = manifest.hidden;
  facts.layers = manifest.layers;
  facts.T = manifest.bptt;
  facts.B = manifest.minibatch;
  facts.output_words = engine.output_words();
  for (const Parameter& parameter : engine.parameters()) {
    int64_t elements = 1;
    for (const int64_t size : parameter.shape) elements *= size;
    facts.parameter_bytes += elements * static_cast<int64_t>(sizeof(float));
    ++facts.parameters;
  }
  facts.kernels = kernels.c_str();
  facts.precision = static_cast<int32_t>(options.precision);
  facts.threads = options.threads;
  constexpr size_t kFirst = offsetof(pg_model, threads) + sizeof(int32_t);
  border::fill_in(facts, kFirst, "pg_model", model);
}

namespace {

OutputSample sample_of(const pg_options& options) {
  if (options.C == 0) return {};
  border::require(options.C >= 1 && options.C <= kMostCandidates,
                  "C: " + std::to_string(options.C) + "; expected 1 to the vocabulary's size");
  border::require(options.candidates != nullptr && options.shifts != nullptr, "candidates or shifts: NULL");
  return {{options.candidates, options.candidates + options.C}, {options.shifts, options.shifts + options.C}};
}

}  // namespace

extern "C" {

int32_t pg_abi_version(void) {
  return PG_ABI_VERSION;
}

const char* pg_version(void) {
  return PG_VERSION;
}

const char* pg_last_error(void) {
  return border::last_error();
}

pg_status pg_engine_open(const char* folder, const char* weights, const pg_options* options, pg_engine** engine) {
  return border::run_guarded([&] {
    border::require(engine != nullptr, "engine: NULL");
    *engine = nullptr;
    const EngineOptions chosen = engine_options_of(options);
    OpenFolder opened = folder_of(folder, options->folder_descriptor);
    const std::string path = opened.path();
    auto* made = new pg_engine{std::move(opened), chosen,
                               Engine(path, weights == nullptr ? "" : weights, chosen, sample_of(*options)), "", ""};
    made->kernels = made->engine.kernels_name();
    *engine = made;
  });
}

pg_status pg_engine_model(const pg_engine* engine, pg_model* model) {
  return border::run_guarded([&] {
    border::require(engine != nullptr, "engine: NULL");
    describe_model(engine->engine, engine->options, engine->kernels, model);
  });
}

void pg_engine_close(pg_engine* engine) {
  delete engine;
}

pg_status pg_engine_reset(pg_engine* engine) {
  return border::run_guarded([&] {
    border::require(engine != nullptr, "engine: NULL");
    engine->engine.reset();
  });
}

pg_status pg_engine_step(pg_engine* engine, const int64_t* tokens, const int64_t* targets, float learning_rate,
                         float* loss) {
  return border::run_guarded([&] {
    border::require(engine != nullptr && tokens != nullptr && targets != nullptr && loss != nullptr,
                    "an argument is NULL");
    *loss = engine->engine.step(tokens, targets, learning_rate);
  });
}

pg_status pg_engine_logits(pg_engine* engine, const int64_t* tokens, int64_t T, int64_t B, float* scores) {
  return border::run_guarded([&] {
    border::require(engine != nullptr && tokens != nullptr && scores != nullptr, "an argument is NULL");
    const float* found = engine->engine.logits(tokens, T, B);
    std::memcpy(scores, found, static_cast<size_t>(T * B * engine->engine.manifest().vocabulary) * sizeof(float));
  });
}

int32_t pg_engine_parameters(const pg_engine* engine) {
  return engine == nullptr ? 0 : static_cast<int32_t>(engine->engine.parameters().size());
}

pg_status pg_engine_parameter(const pg_engine* engine, int32_t index, const char** name, int64_t* elements,
                              const float** data) {
  return border::run_guarded([&] {
    border::require(engine != nullptr && name != nullptr && elements != nullptr && data != nullptr,
                    "an argument is NULL");
    border::require(index >= 0 && index < pg_engine_parameters(engine),
                    "no parameter " + std::to_string(index) + "; expected 0 to " +
                        std::to_string(pg_engine_parameters(engine) - 1));
    engine->engine.scatter();
    const Parameter& parameter = engine->engine.parameters()[static_cast<size_t>(index)];
    *name = parameter.name.c_str();
    *data = parameter.data;
    *elements = 1;
    for (int64_t size : parameter.shape) *elements *= size;
  });
}

pg_status pg_engine_plan(pg_engine* engine, const char** text) {
  return border::run_guarded([&] {
    border::require(engine != nullptr && text != nullptr, "an argument is NULL");
    engine->text = engine->engine.plan_text();
    *text = engine->text.c_str();
  });
}

pg_status pg_engine_phases(pg_engine* engine, const char** json) {
  return border::run_guarded([&] {
    border::require(engine != nullptr && json != nullptr, "an argument is NULL");
    engine->text = "{";
    for (const PhaseTime& phase : engine->engine.phase_times()) {
      engine->text += (engine->text.size() > 1 ? ", \"" : "\"") + phase.phase + "\": " + std::to_string(phase.seconds);
    }
    engine->text += "}";
    *json = engine->text.c_str();
  });
}

pg_status pg_graph_open(const char* model, const char* optimizer, const char* weights, const pg_options* options,
                        pg_graph** graph) {
  return border::run_guarded([&] {
    border::require(model != nullptr && graph != nullptr, "model or graph: NULL");
    *graph = nullptr;
    *graph = new pg_graph(model, optimizer, weights, engine_options_of(options));
  });
}

void pg_graph_close(pg_graph* graph) {
  delete graph;
}

pg_status pg_graph_set(pg_graph* graph, const char* name, const void* data, size_t bytes) {
  return border::run_guarded([&] {
    border::require(graph != nullptr && name != nullptr && data != nullptr, "an argument is NULL");
    graph->set(name, data, bytes);
  });
}

pg_status pg_graph_run(pg_graph* graph, float learning_rate) {
  return border::run_guarded([&] {
    border::require(graph != nullptr, "graph: NULL");
    graph->run(learning_rate);
  });
}

pg_status pg_graph_get(pg_graph* graph, const char* name, const void** data, size_t* bytes, int64_t* shape,
                       int32_t* rank) {
  return border::run_guarded([&] {
    border::require(graph != nullptr && name != nullptr && data != nullptr && bytes != nullptr && shape != nullptr &&
                        rank != nullptr,
                    "an argument is NULL");
    const Tensor& tensor = graph->get(name);
    border::require(tensor.shape.size() <= 8, "value '" + tensor.name + "': more than 8 dimensions");
    *data = tensor.data;
    *bytes = tensor.bytes();
    *rank = static_cast<int32_t>(tensor.shape.size());
    for (size_t i = 0; i < tensor.shape.size(); ++i) shape[i] = tensor.shape[i];
  });
}

}  // extern "C"
