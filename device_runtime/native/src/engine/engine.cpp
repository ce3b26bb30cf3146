#include "engine/engine.h"

#include "engine/evaluation_session.h"
#include "engine/full_batch.h"
#include "engine/training_session.h"
#include "formats/optimizer_model.h"

namespace phonograd {

Engine::Engine(const std::string& folder, const std::string& weights, const EngineOptions& options,
               const OutputSample& sample)
    : model_(std::make_unique<LoadedModel>(folder, weights, options, sample)),
      training_(std::make_unique<TrainingSession>(*model_)),
      evaluation_(std::make_unique<EvaluationSession>(*model_)) {}

Engine::~Engine() = default;

const Manifest& Engine::manifest() const {
  return model_->manifest;
}

const OutputSample& Engine::output_sample() const {
  return model_->candidates.sample();
}

int64_t Engine::output_words() const {
  return model_->candidates.empty() ? model_->manifest.vocabulary : model_->candidates.count();
}

bool Engine::full_batch() const {
  return model_->options.full_batch;
}

void Engine::finish_full_batch(float learning_rate) {
  const float clip_norm = read_clip_norm(model_->manifest.path("optimizer_model.onnx"));
  if (clip_norm > 0) clip_movement(model_->compute, model_->file, model_->parameters, clip_norm, learning_rate);
  model_->require_unchanged();
}

void Engine::reset() {
  if (training_ != nullptr) training_->reset();
  evaluation_->reset();
}

float Engine::step(const int64_t* tokens, const int64_t* targets, float learning_rate) {
  return training_->step(tokens, targets, learning_rate);
}

void Engine::scatter() const {
  if (training_ != nullptr) training_->scatter();
}

void Engine::end_training() {
  training_->end();
  training_.reset();
}

const float* Engine::logits(const int64_t* tokens, int64_t T, int64_t B) {
  scatter();
  return evaluation_->logits(tokens, T, B);
}

uint64_t Engine::steps_taken() const {
  return training_->steps_taken();
}

void Engine::set_steps_taken(uint64_t steps) {
  training_->set_steps_taken(steps);
}

std::vector<RecurrentState>& Engine::training_states() {
  return training_->states();
}

const std::vector<Parameter>& Engine::parameters() const {
  return model_->parameters;
}

const std::vector<PhaseTime>& Engine::phase_times() const {
  return training_->program().phases();
}

std::string Engine::plan_text() const {
  return model_->compute_text() + training_->program().plan_text();
}

std::string Engine::kernels_name() const {
  return model_->compute.kernels.name;
}

const TensorFile& Engine::weights() const {
  return model_->file;
}

void Engine::require_weights_unchanged() const {
  model_->require_unchanged();
}

}  // namespace phonograd
