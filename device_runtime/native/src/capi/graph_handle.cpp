#include <cstring>

#include "capi/border.h"
#include "capi/handles.h"
#include "formats/onnx_reader.h"
#include "formats/optimizer_model.h"
#include "graph/coupling.h"

using namespace phonograd;

pg_graph::pg_graph(const char* model, const char* optimizer, const char* weights, const EngineOptions& options)
    : compute_(options.threads, options.pin_threads, kernel_set(options.kernels.c_str())), seed_(options.seed) {
  if (options.precision != Precision::fp32) throw Error(Status::unsupported, "graphs run in fp32 only");
  ProgramOptions how;
  how.fuse = options.fuse;
  how.updates = optimizer != nullptr;
  if (how.updates) how.clip_norm = read_clip_norm(optimizer);
  onnx::Model planned = onnx::read_model(model);
  if (how.fuse) couple_gates(planned);
  auto graph = std::make_unique<Graph>(std::move(planned), FreeSizes{}, check_node);
  std::map<std::string, float*> memory;
  if (weights != nullptr) {
    file_ = std::make_unique<TensorFile>(weights);
    for (const TensorSpec& spec : file_->specs()) {
      const int value = graph->find(spec.name);
      if (value < 0 || !graph->value(value).is_input || spec.dtype != "F32" ||
          graph->value(value).shape != spec.shape) {
        throw Error(Status::weights, file_->path() + ": tensor '" + spec.name + "' " + spec.dtype + " " +
                                         to_text(spec.shape) + " is not an input of " + model + " with that shape");
      }
    }
    require_aligned(*file_);
    writable_ = file_->map_copy_on_write();
    for (const TensorSpec& spec : file_->specs())
      memory[spec.name] = reinterpret_cast<float*>(writable_.data() + spec.offset);
  }
  program_ = std::make_unique<Program>(std::move(graph), compute_, memory, how);
}

void pg_graph::set(const char* name, const void* data, size_t bytes) {
  Tensor* tensor = program_->find(name);
  const int value = program_->graph().find(name);
  border::require(tensor != nullptr && program_->graph().value(value).is_input,
                  std::string("value '") + name + "': no such input, or no node reads it");
  const size_t expected = tensor->bytes();
  border::require(bytes == expected, std::string("input '") + name + "' " + to_text(tensor->shape) + ": " +
                                         std::to_string(expected) + " bytes expected, found " + std::to_string(bytes));
  std::memcpy(tensor->data, data, bytes);
}

void pg_graph::run(float learning_rate) {
  Run run{compute_.pool, compute_.kernels, compute_.products, learning_rate, seed_, steps_};
  program_->run(run);
  ++steps_;
}

const Tensor& pg_graph::get(const char* name) {
  const Tensor* tensor = program_->find(name);
  border::require(tensor != nullptr, std::string("value '") + name +
                                         "': no such value, or it has no memory after a run" +
                                         " (as values inside fused nodes)");
  return *tensor;
}
