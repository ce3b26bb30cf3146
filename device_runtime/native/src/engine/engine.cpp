#include "engine/engine.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "base/finite.h"
#include "engine/candidates.h"
#include "engine/full_batch.h"
#include "engine/program.h"
#include "formats/onnx_reader.h"
#include "formats/optimizer_model.h"
#include "formats/tensor_file.h"
#include "graph/packing.h"

namespace phonograd {

namespace {

constexpr const char* kTeacherPrefix = "teacher.";
constexpr const char* kTrainingModel = "training_model.onnx";
constexpr const char* kSampledTrainingModel = "training_model_sampled.onnx";

Tensor& need(Program& program, const std::string& name, DataType type, const Shape& shape) {
  Tensor* tensor = program.find(name);
  if (tensor == nullptr || tensor->type != type || tensor->shape != shape) {
    throw Error(Status::artifacts, program.graph().path() + ": value '" + name + "' " + to_text(shape) +
                                       " expected, found " + (tensor == nullptr ? "none" : to_text(tensor->shape)) +
                                       "; export the artifacts again");
  }
  return *tensor;
}

const Bf16Kernels* bf16_of(const EngineOptions& options) {
  if (options.precision == Precision::fp32) return nullptr;
  return &bf16_kernels(kernel_set(options.kernels.c_str()), options.precision == Precision::bf16_emulated);
}

// Whether a tensor has the name of PyTorch's LSTM and GRU modules, whatever the module is called: `rnn.weight_ih_l0`.
bool is_torch_weight(const std::string& name) {
  const std::string end = "weight_ih_l0";
  return name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
}

// The tensor that an input of this name holds; a teacher's is the model's.
std::string tensor_name(const std::string& input) {
  const bool of_teacher = input.rfind(kTeacherPrefix, 0) == 0;
  return of_teacher ? input.substr(std::strlen(kTeacherPrefix)) : input;
}

// A recurrent state and the value it becomes.
struct CarriedState {
  Tensor *now, *next;
  void carry() { std::memcpy(now->data, next->data, now->bytes()); }
  void clear() { std::memset(now->data, 0, now->bytes()); }
};

}  // namespace

struct Engine::Impl {
  Manifest manifest;
  EngineOptions options;
  TensorFile file;
  Mapping writable;  // the weights, pages copied as they change
  Compute compute;
  std::map<std::string, float*> memory;  // of parameters by name, a teacher's included
  std::vector<Parameter> parameters;
  std::vector<const TensorSpec*> teacher_tables;  // of which a step reads some rows
  std::unique_ptr<Program> training, evaluation;
  std::vector<CarriedState> states, evaluation_states;
  std::vector<RecurrentState> training_states;
  std::vector<PhaseTime> phases;
  Candidates candidates;
  bool scattered = true;  // parameters' data are what was trained
  bool full_batch = false;
  Tensor *tokens = nullptr, *targets = nullptr, *loss = nullptr;
  int64_t evaluation_T = 0, evaluation_B = 0;
  uint64_t steps = 0;

  Impl(const std::string& folder, const std::string& weights, const EngineOptions& chosen, const OutputSample& drawn);
  void bind_weights();
  void check_finite();
  void require_unchanged() const;
  void check_parameters(const Graph& graph, const std::map<std::string, float*>& bound) const;
  void plan_training();
  void find_teacher_tables();
  using Bound = std::map<std::string, float*>;  // memory by parameter
  float* base_of(const std::string& name) const { return memory.at(kTeacherPrefix + tensor_name(name)); }
  std::unique_ptr<Graph> training_graph(Bound& bound, Bound& moved);
  void pack(onnx::Model& model, Bound& bound, Bound& moved);
  void set_window(const int64_t* token_ids, const int64_t* target_ids);
  void scatter(bool last);
  void plan_evaluation(int64_t T, int64_t B);
};

Engine::Impl::Impl(const std::string& folder, const std::string& weights, const EngineOptions& chosen,
                   const OutputSample& drawn)
    : manifest(read_manifest(folder)),
      options(chosen),
      file(weights.empty() ? manifest.path("weights.safetensors") : weights),
      compute(chosen.threads, chosen.pin_threads, kernel_set(chosen.kernels.c_str()), bf16_of(chosen)),
      candidates(drawn, manifest.vocabulary) {
  bind_weights();
  plan_training();
}

void Engine::Impl::bind_weights() {
  for (const ManifestTensor& tensor : manifest.tensors) {
    const std::string wanted = tensor.name + " F32" + to_text(tensor.shape);
    const TensorSpec* found = file.find(tensor.name);
    if (found == nullptr) {
      const bool torch = std::any_of(file.specs().begin(), file.specs().end(),
                                     [](const TensorSpec& spec) { return is_torch_weight(spec.name); });
      throw Error(Status::weights,
                  file.path() + ": tensor " + wanted + " expected, " +
                      (torch ? "found a PyTorch model; export it first with: phonograd export --model" : "not found"));
    }
    if (found->dtype != "F32" || found->shape != tensor.shape) {
      throw Error(Status::weights, file.path() + ": tensor " + wanted + " expected, found " + found->name + " " +
                                       found->dtype + to_text(found->shape));
    }
  }
  require_aligned(file);
  if (file.specs().size() != manifest.tensors.size()) {
    throw Error(Status::weights, file.path() + ": " + std::to_string(manifest.tensors.size()) +
                                     " tensors expected, found " + std::to_string(file.specs().size()));
  }
  check_finite();
  writable = file.map_copy_on_write();
  for (const ManifestTensor& tensor : manifest.tensors) {
    const TensorSpec& spec = file.at(tensor.name);
    auto* values = reinterpret_cast<float*>(writable.data() + spec.offset);
    memory[tensor.name] = values;
    // LwF's teacher is the model as it was sent (paper P, eq. 2): the same pages, never written to.
    memory[kTeacherPrefix + tensor.name] = reinterpret_cast<float*>(const_cast<unsigned char*>(file.data(spec)));
    parameters.push_back({tensor.name, tensor.shape, values});
  }
}

void Engine::Impl::require_unchanged() const {
  file.require_unchanged();
  if (writable.lost()) {
    throw Error(Status::weights, file.path() + ": part of it can't be read; fetch it again and restart");
  }
}

// Every value is read once, before anything runs: a NaN would spoil all others within a step. In pieces, so that the
// file is never resident as a whole.
void Engine::Impl::check_finite() {
  constexpr size_t kPiece = size_t{1} << 18;  // elements
  const std::vector<TensorSpec>& specs = file.specs();
  std::vector<char> finite(specs.size(), 1);
  compute.pool.for_each(static_cast<int64_t>(specs.size()), [&](int64_t i, int) {
    const TensorSpec& spec = specs[static_cast<size_t>(i)];
    const auto* values = reinterpret_cast<const float*>(file.data(spec));
    double total = 0;
    for (size_t at = 0; at < spec.elements(); at += kPiece) {
      total += compute.kernels.sum_of_squares(std::min(kPiece, spec.elements() - at), values + at);
      file.release_pages();
    }
    finite[static_cast<size_t>(i)] = std::isfinite(total);
  });
  for (size_t i = 0; i < specs.size(); ++i) {
    if (finite[i]) continue;
    const auto* values = reinterpret_cast<const float*>(file.data(specs[i]));
    const size_t at = first_not_finite(values, specs[i].elements());
    const std::string where = file.path() + ": tensor " + specs[i].name + ": ";
    if (at == specs[i].elements()) throw Error(Status::weights, where + "values whose squares pass the largest float");
    throw Error(Status::weights, where + not_finite(values, at));
  }
  file.release_pages();
  file.require_unchanged();
}

// Holds a graph's inputs to the shapes of the tensors that they are bound to.
void Engine::Impl::check_parameters(const Graph& graph, const std::map<std::string, float*>& bound) const {
  for (const Value& value : graph.values()) {
    const auto found = bound.find(value.name);
    if (!value.is_input || found == bound.end()) continue;
    Shape shape = file.at(tensor_name(value.name)).shape;
    const bool packed = found->second != memory.at(value.name) && found->second != base_of(value.name);
    if (packed) shape[0] = candidates.count();
    if (value.type == DataType::float32 && value.shape == shape) continue;
    throw Error(Status::artifacts, graph.path() + ": input '" + value.name + "' float32 " + to_text(shape) +
                                       " expected, as the model's tensor, found " + to_text(value.shape) +
                                       "; export the artifacts again");
  }
}

void Engine::Impl::plan_training() {
  ProgramOptions how;
  how.fuse = options.fuse;
  how.updates = true;
  if (!full_batch) how.clip_norm = read_clip_norm(manifest.path("optimizer_model.onnx"));
  Bound bound = memory;
  if (full_batch) {
    for (const Parameter& parameter : parameters) {
      how.targets[parameter.name] = parameter.data;
      bound[parameter.name] = base_of(parameter.name);
    }
  }
  auto graph = training_graph(bound, how.targets);
  check_parameters(*graph, bound);
  training = std::make_unique<Program>(std::move(graph), compute, bound, how);
  find_teacher_tables();
  const Shape window = {manifest.bptt, manifest.minibatch};
  tokens = &need(*training, "tokens", DataType::int64, window);
  targets = &need(*training, "targets", DataType::int64, window);
  loss = &need(*training, "loss", DataType::float32, {});
  for (const ManifestState& state : manifest.states) {
    states.push_back({&need(*training, state.input, DataType::float32, state.shape),
                      &need(*training, state.output, DataType::float32, state.shape)});
    training_states.push_back({state.input, state.shape, states.back().now->floats()});
  }
  for (const PhaseSeconds& phase : training->phases()) phases.push_back({phase.phase, 0});
  if (candidates.empty()) return;
  const int64_t C = candidates.count();
  const OutputSample& sample = candidates.sample();
  Tensor& shifts = need(*training, kShifts, DataType::float32, {C});
  std::memcpy(shifts.data, sample.shifts.data(), shifts.bytes());
  if (options.fuse) return;
  Tensor& ids = need(*training, kCandidates, DataType::int64, {C});
  std::memcpy(ids.data, sample.candidates.data(), ids.bytes());
}

void Engine::Impl::find_teacher_tables() {
  const Graph& graph = training->graph();
  for (const Value& value : graph.values()) {
    if (!value.is_input || value.name.rfind(kTeacherPrefix, 0) != 0 || memory.count(value.name) == 0) continue;
    const bool gathered = std::all_of(value.consumers.begin(), value.consumers.end(),
                                      [&](int node) { return graph.node(node).source->op == "Gather"; });
    if (gathered) teacher_tables.push_back(&file.at(tensor_name(value.name)));
  }
}

// The full graph; or the sampled one, with packed rows in `bound` in place of whole parameters. Unfused, that one
// gathers them in every step, as it stands.
std::unique_ptr<Graph> Engine::Impl::training_graph(Bound& bound, Bound& moved) {
  if (candidates.empty()) {
    return std::make_unique<Graph>(onnx::read_model(manifest.path(kTrainingModel)), FreeSizes{}, check_node);
  }
  onnx::Model model = onnx::read_model(manifest.path(kSampledTrainingModel));
  if (options.fuse) pack(model, bound, moved);
  return std::make_unique<Graph>(std::move(model), FreeSizes{{"C", candidates.count()}}, check_node);
}

void Engine::Impl::pack(onnx::Model& model, Bound& bound, Bound& moved) {
  for (const auto& [name, shape] : pack_candidates(model, candidates.count())) {
    const TensorSpec* spec = file.find(tensor_name(name));
    if (spec == nullptr || spec->shape != shape || shape[0] != manifest.vocabulary) {
      throw Error(Status::artifacts, model.path + ": input '" + name + "' " + to_text(shape) +
                                         " is gathered by words and is no tensor of the model with that shape; "
                                         "export the artifacts again");
    }
    bound[name] = candidates.gather(file, *spec, name);
    const auto target = moved.find(name);
    if (target == moved.end()) continue;
    target->second = bound[name];
    bound[name] = candidates.gather_base(file, *spec, name);
  }
  for (Parameter& parameter : parameters) candidates.bind(parameter);
  file.require_unchanged();
}

void Engine::Impl::set_window(const int64_t* token_ids, const int64_t* target_ids) {
  if (candidates.empty()) {
    std::memcpy(tokens->data, token_ids, tokens->bytes());
    std::memcpy(targets->data, target_ids, targets->bytes());
    return;
  }
  const auto count = static_cast<size_t>(tokens->elements());
  candidates.places(token_ids, count, false, tokens->integers());
  candidates.places(target_ids, count, true, targets->integers());
  // The graph as it stands has a tied model's tokens among the candidates, and others' in the vocabulary.
  if (!options.fuse && !manifest.tied) std::memcpy(tokens->data, token_ids, tokens->bytes());
}

void Engine::Impl::scatter(bool last) {
  for (Parameter& parameter : parameters) {
    if (!scattered) candidates.scatter(parameter, file);
    if (last) candidates.unbind(parameter);
  }
  scattered = true;
}

void Engine::Impl::plan_evaluation(int64_t T, int64_t B) {
  constexpr int64_t kMostTokens = 1 << 20;
  if (T < 1 || B < 1 || T > kMostTokens / B) {
    throw Error(Status::usage, "evaluation window: " + std::to_string(T) + " steps of " + std::to_string(B) +
                                   " columns; expected at least 1 of each and at most 2^20 tokens");
  }
  const bool same_columns = evaluation != nullptr && B == evaluation_B;
  std::vector<std::vector<float>> carried;
  if (same_columns) {
    for (const CarriedState& state : evaluation_states) {
      carried.emplace_back(state.now->floats(), state.now->floats() + state.now->elements());
    }
  }
  evaluation_states.clear();
  evaluation.reset();
  evaluation_T = evaluation_B = 0;  // until all is in place: what follows may find no memory
  auto graph = std::make_unique<Graph>(onnx::read_model(manifest.path("eval_model.onnx")),
                                       FreeSizes{{"T", T}, {"B", B}}, check_node);
  check_parameters(*graph, memory);
  evaluation = std::make_unique<Program>(std::move(graph), compute, memory, ProgramOptions{options.fuse, false, 0});
  need(*evaluation, "tokens", DataType::int64, {T, B});
  need(*evaluation, "logits", DataType::float32, {T * B, manifest.vocabulary});
  for (const ManifestState& state : manifest.states) {
    if (state.input.rfind(kTeacherPrefix, 0) == 0) continue;
    const Shape shape = {1, B, manifest.hidden};
    evaluation_states.push_back({&need(*evaluation, state.input, DataType::float32, shape),
                                 &need(*evaluation, state.output, DataType::float32, shape)});
  }
  for (size_t i = 0; i < carried.size(); ++i) {
    std::memcpy(evaluation_states[i].now->data, carried[i].data(), carried[i].size() * sizeof(float));
  }
  evaluation_T = T;
  evaluation_B = B;
}

Engine::Engine(const std::string& folder, const std::string& weights, const EngineOptions& options,
               const OutputSample& sample)
    : impl_(std::make_unique<Impl>(folder, weights, options, sample)) {}

Engine::~Engine() = default;

const Manifest& Engine::manifest() const {
  return impl_->manifest;
}

const OutputSample& Engine::output_sample() const {
  return impl_->candidates.sample();
}

int64_t Engine::output_words() const {
  return impl_->candidates.empty() ? impl_->manifest.vocabulary : impl_->candidates.count();
}

void Engine::start_full_batch() {
  Impl& impl = *impl_;
  impl.states.clear();
  impl.training_states.clear();
  impl.phases.clear();
  impl.teacher_tables.clear();
  impl.training.reset();
  impl.full_batch = true;
  impl.plan_training();
}

bool Engine::full_batch() const {
  return impl_->full_batch;
}

void Engine::finish_full_batch(float learning_rate) {
  Impl& impl = *impl_;
  const float clip_norm = read_clip_norm(impl.manifest.path("optimizer_model.onnx"));
  if (clip_norm > 0) clip_movement(impl.compute, impl.file, impl.parameters, clip_norm, learning_rate);
  impl.require_unchanged();
}

void Engine::reset() {
  for (CarriedState& state : impl_->states) state.clear();
  for (CarriedState& state : impl_->evaluation_states) state.clear();
}

float Engine::step(const int64_t* tokens, const int64_t* targets, float learning_rate) {
  Impl& impl = *impl_;
  impl.set_window(tokens, targets);
  impl.scattered = false;
  Compute& compute = impl.compute;
  Run run{compute.pool, compute.kernels, compute.products, learning_rate, impl.options.seed, impl.steps};
  impl.training->run(run);
  // With each of its rows a fault mapped 64 KiB of the file; the next steps' would soon add up to the whole table.
  for (const TensorSpec* table : impl.teacher_tables) impl.file.release_pages(*table);
  for (size_t i = 0; i < impl.phases.size(); ++i) impl.phases[i].seconds = impl.training->phases()[i].seconds;
  impl.require_unchanged();
  const float loss = *impl.loss->floats();
  if (!std::isfinite(loss)) return loss;
  for (CarriedState& state : impl.states) state.carry();
  ++impl.steps;
  return loss;
}

void Engine::scatter() const {
  impl_->scatter(false);
}

void Engine::end_training() {
  Impl& impl = *impl_;
  impl.states.clear();
  impl.training_states.clear();
  impl.training.reset();
  impl.file.release_pages();  // a teacher's
  impl.scatter(true);
}

const float* Engine::logits(const int64_t* tokens, int64_t T, int64_t B) {
  Impl& impl = *impl_;
  impl.scatter(false);
  if (impl.evaluation == nullptr || T != impl.evaluation_T || B != impl.evaluation_B) impl.plan_evaluation(T, B);
  Tensor* input = impl.evaluation->find("tokens");
  std::memcpy(input->data, tokens, input->bytes());
  Run run{impl.compute.pool, impl.compute.kernels, impl.compute.products};
  impl.evaluation->run(run);
  impl.require_unchanged();
  for (CarriedState& state : impl.evaluation_states) state.carry();
  return impl.evaluation->find("logits")->floats();
}

uint64_t Engine::steps_taken() const {
  return impl_->steps;
}
void Engine::set_steps_taken(uint64_t steps) {
  impl_->steps = steps;
  impl_->scattered = false;  // a state restores packed rows as well
}
std::vector<RecurrentState>& Engine::training_states() {
  return impl_->training_states;
}
const std::vector<Parameter>& Engine::parameters() const {
  return impl_->parameters;
}
const std::vector<PhaseTime>& Engine::phase_times() const {
  return impl_->phases;
}
std::string Engine::kernels_name() const {
  return impl_->compute.kernels.name;
}
const TensorFile& Engine::weights() const {
  return impl_->file;
}
void Engine::require_weights_unchanged() const {
  impl_->require_unchanged();
}

std::string Engine::plan_text() const {
  const Bf16Kernels* bf16 = bf16_of(impl_->options);
  const std::string products = bf16 == nullptr ? "" : std::string(" with bf16 products (") + bf16->name + ")";
  return "kernels " + kernels_name() + products + ", " + std::to_string(impl_->compute.pool.threads()) + " threads\n" +
         impl_->training->plan_text();
}

}  // namespace phonograd
