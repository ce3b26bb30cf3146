#include "capi/model.h"

#include "capi/sized.h"

namespace phonograd {

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

}  // namespace phonograd
