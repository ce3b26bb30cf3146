#include "engine/evaluation_session.h"

#include <cstring>
#include <string>
#include <utility>

#include "formats/onnx_reader.h"
#include "graph/coupling.h"

namespace phonograd {

void EvaluationSession::plan(int64_t T, int64_t B) {
  constexpr int64_t kMostTokens = 1 << 20;
  if (T < 1 || B < 1 || T > kMostTokens / B) {
    throw Error(Status::usage, "evaluation window: " + std::to_string(T) + " steps of " + std::to_string(B) +
                                   " columns; expected at least 1 of each and at most 2^20 tokens");
  }
  std::vector<std::vector<float>> carried;
  if (program_ != nullptr && B == B_) {
    for (const CarriedState& state : states_) {
      carried.emplace_back(state.now->floats(), state.now->floats() + state.now->elements());
    }
  }
  states_.clear();
  program_.reset();
  T_ = B_ = 0;  // until all is in place: what follows may find no memory
  const Manifest& manifest = model_.manifest;
  onnx::Model planned = onnx::read_model(manifest.path("eval_model.onnx"));
  if (model_.options.fuse) couple_gates(planned);
  auto graph = std::make_unique<Graph>(std::move(planned), FreeSizes{{"T", T}, {"B", B}}, check_node);
  model_.check_parameters(*graph, model_.memory);
  ProgramOptions how;
  how.fuse = model_.options.fuse;
  program_ = std::make_unique<Program>(std::move(graph), model_.compute, model_.memory, how);
  program_->need("tokens", DataType::int64, {T, B});
  program_->need("logits", DataType::float32, {T * B, manifest.vocabulary});
  for (const ManifestState& state : manifest.states) {
    if (state.input.rfind(kTeacherPrefix, 0) == 0) continue;
    const Shape shape = {1, B, manifest.hidden};
    states_.push_back({&program_->need(state.input, DataType::float32, shape),
                       &program_->need(state.output, DataType::float32, shape)});
  }
  for (size_t i = 0; i < carried.size(); ++i) {
    std::memcpy(states_[i].now->data, carried[i].data(), carried[i].size() * sizeof(float));
  }
  T_ = T;
  B_ = B;
}

void EvaluationSession::reset() {
  for (CarriedState& state : states_) state.clear();
}

const float* EvaluationSession::logits(const int64_t* tokens, int64_t T, int64_t B) {
  if (program_ == nullptr || T != T_ || B != B_) plan(T, B);
  Tensor* input = program_->find("tokens");
  std::memcpy(input->data, tokens, input->bytes());
  Run run{model_.compute.pool, model_.compute.kernels, model_.compute.products};
  program_->run(run);
  model_.require_unchanged();
  for (CarriedState& state : states_) state.carry();
  return program_->find("logits")->floats();
}

}  // namespace phonograd
