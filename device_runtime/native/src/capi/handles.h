// The structs behind the C ABI's opaque handles.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "capi/open_folder.h"
#include "engine/engine.h"
#include "engine/program.h"
#include "formats/tensor_file.h"
#include "phonograd.h"

// The number of threads; 0: the default. Throws Error(usage).
int threads_of(int32_t given);

// The options of an engine. Throws Error(usage).
phonograd::EngineOptions engine_options_of(const pg_options* options);

// Fill in the caller's struct. `kernels` must live as long as the handle. Throws Error(usage) for NULL or a wrong size.
void describe_model(const phonograd::Engine& engine, const phonograd::EngineOptions& options,
                    const std::string& kernels, pg_model* model);

// An engine, its options, and the text it returned last.
struct pg_engine {
  phonograd::OpenFolder folder;  // the engine reads a graph from it later
  phonograd::EngineOptions options;
  phonograd::Engine engine;
  std::string kernels;
  std::string text;  // the last plan or phases
};

// A graph of known operators and memory for its values, which are accessed by name.
struct pg_graph {
 public:
  pg_graph(const char* model, const char* optimizer, const char* weights, const phonograd::EngineOptions& options);
  pg_graph(const pg_graph&) = delete;
  pg_graph& operator=(const pg_graph&) = delete;

  void set(const char* name, const void* data, size_t bytes);  // a whole input
  void run(float learning_rate);
  const phonograd::Tensor& get(const char* name);

 private:
  std::unique_ptr<phonograd::TensorFile> file_;
  phonograd::Mapping writable_;
  phonograd::Compute compute_;
  uint64_t seed_, steps_ = 0;
  std::unique_ptr<phonograd::Program> program_;
};
