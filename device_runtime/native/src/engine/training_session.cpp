#include "engine/training_session.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "formats/onnx_reader.h"
#include "formats/optimizer_model.h"
#include "graph/coupling.h"
#include "graph/packing.h"

namespace phonograd {

TrainingSession::TrainingSession(LoadedModel& model) : model_(model) {
  const Manifest& manifest = model.manifest;
  ProgramOptions how;
  how.fuse = model.options.fuse;
  how.updates = true;
  BoundParameters bound = model.memory;
  if (model.options.full_batch) {
    for (const Parameter& parameter : model.parameters) {
      how.targets[parameter.name] = parameter.data;
      bound[parameter.name] = model.base_of(parameter.name);
    }
  } else {
    how.clip_norm = read_clip_norm(manifest.path("optimizer_model.onnx"));
  }
  auto planned = graph(bound, how.targets);
  model.check_parameters(*planned, bound);
  program_ = std::make_unique<Program>(std::move(planned), model.compute, bound, how);
  const Shape window = {manifest.bptt, manifest.minibatch};
  tokens_ = &program_->need("tokens", DataType::int64, window);
  targets_ = &program_->need("targets", DataType::int64, window);
  loss_ = &program_->need("loss", DataType::float32, {});
  for (const ManifestState& state : manifest.states) {
    states_.push_back({&program_->need(state.input, DataType::float32, state.shape),
                       &program_->need(state.output, DataType::float32, state.shape)});
    recurrent_.push_back({state.input, state.shape, states_.back().now->floats()});
  }
  find_teacher_tables();
  if (!model.candidates.empty()) bind_sample();
  const int64_t C = model.candidates.empty() ? manifest.vocabulary : model.candidates.count();
  if (model.teacher != nullptr) model.teacher->set_unknown(*program_, C);
}

// The full graph; or the sampled one, with packed rows in `bound` in place of whole parameters. Unfused, that one
// gathers them in every step, as it stands.
std::unique_ptr<Graph> TrainingSession::graph(BoundParameters& bound, BoundParameters& moved) {
  const Manifest& manifest = model_.manifest;
  const bool sampled = !model_.candidates.empty();
  onnx::Model planned =
      onnx::read_model(manifest.path(sampled ? "training_model_sampled.onnx" : "training_model.onnx"));
  if (model_.options.fuse) couple_gates(planned);
  if (model_.options.fuse && sampled) pack(planned, bound, moved);
  FreeSizes sizes;
  if (sampled) sizes["C"] = model_.candidates.count();
  if (model_.teacher != nullptr) sizes["U"] = model_.teacher->unknown();
  return std::make_unique<Graph>(std::move(planned), sizes, check_node);
}

void TrainingSession::pack(onnx::Model& graph, BoundParameters& bound, BoundParameters& moved) {
  Candidates& candidates = model_.candidates;
  for (const auto& [name, shape] : pack_candidates(graph, candidates.count())) {
    const TensorSpec* spec = model_.spec_of(name);
    if (spec == nullptr || spec->shape != shape || shape[0] != model_.manifest.vocabulary) {
      throw Error(Status::artifacts, graph.path + ": input '" + name + "' " + to_text(shape) +
                                         " is gathered by words and is no tensor of the model with that shape; "
                                         "export the artifacts again");
    }
    bound[name] = candidates.gather(model_.file_of(name), *spec, name);
    const auto target = moved.find(name);
    if (target == moved.end()) continue;
    target->second = bound[name];
    bound[name] = candidates.gather_base(model_.file, *spec, name);
  }
  for (Parameter& parameter : model_.parameters) candidates.bind(parameter);
  model_.file.require_unchanged();
}

void TrainingSession::bind_sample() {
  const OutputSample& sample = model_.candidates.sample();
  const int64_t C = model_.candidates.count();
  Tensor& shifts = program_->need(kShifts, DataType::float32, {C});
  std::memcpy(shifts.data, sample.shifts.data(), shifts.bytes());
  if (model_.options.fuse) return;
  Tensor& ids = program_->need(kCandidates, DataType::int64, {C});
  std::memcpy(ids.data, sample.candidates.data(), ids.bytes());
}

void TrainingSession::find_teacher_tables() {
  if (model_.teacher != nullptr) return;
  const Graph& graph = program_->graph();
  for (const Value& value : graph.values()) {
    if (!value.is_input || value.name.rfind(kTeacherPrefix, 0) != 0 || model_.memory.count(value.name) == 0) continue;
    const bool gathered = std::all_of(value.consumers.begin(), value.consumers.end(),
                                      [&](int node) { return graph.node(node).source->op == "Gather"; });
    if (gathered) teacher_tables_.push_back(&model_.file.at(tensor_name(value.name)));
  }
}

void TrainingSession::set_window(const int64_t* token_ids, const int64_t* target_ids) {
  const Candidates& candidates = model_.candidates;
  if (candidates.empty()) {
    std::memcpy(tokens_->data, token_ids, tokens_->bytes());
    std::memcpy(targets_->data, target_ids, targets_->bytes());
    return;
  }
  const auto count = static_cast<size_t>(tokens_->elements());
  candidates.places(token_ids, count, false, tokens_->integers());
  candidates.places(target_ids, count, true, targets_->integers());
  // The graph as it stands has a tied model's tokens among the candidates, and others' in the vocabulary.
  if (!model_.options.fuse && !model_.manifest.tied) std::memcpy(tokens_->data, token_ids, tokens_->bytes());
}

void TrainingSession::reset() {
  for (CarriedState& state : states_) state.clear();
}

float TrainingSession::step(const int64_t* token_ids, const int64_t* target_ids, float learning_rate) {
  set_window(token_ids, target_ids);
  moved_ = true;
  Compute& compute = model_.compute;
  Run run{compute.pool, compute.kernels, compute.products, learning_rate, model_.options.seed, steps_};
  program_->run(run);
  // With each of its rows a fault mapped 64 KiB of the file; the next steps' would soon add up to the whole table.
  for (const TensorSpec* table : teacher_tables_) model_.file.release_pages(*table);
  model_.require_unchanged();
  const float loss = *loss_->floats();
  if (!std::isfinite(loss)) return loss;
  for (CarriedState& state : states_) state.carry();
  ++steps_;
  return loss;
}

void TrainingSession::set_steps_taken(uint64_t steps) {
  steps_ = steps;
  moved_ = true;  // a state restores the candidates' rows as well
}

void TrainingSession::scatter() {
  if (!moved_) return;
  for (Parameter& parameter : model_.parameters) model_.candidates.scatter(parameter, model_.file);
  moved_ = false;
}

void TrainingSession::end() {
  program_.reset();
  model_.file.release_pages();  // a teacher's
  for (Parameter& parameter : model_.parameters) {
    if (moved_) model_.candidates.scatter(parameter, model_.file);
    model_.candidates.unbind(parameter);
  }
}

}  // namespace phonograd
