#include "engine/program.h"

#include <algorithm>
#include <chrono>

#include "engine/planner.h"

namespace phonograd {

Program::Program(std::unique_ptr<Graph> graph, const Compute& compute, const std::map<std::string, float*>& parameters,
                 const ProgramOptions& options)
    : graph_(std::move(graph)) {
  Planner(*this, compute, parameters, options).plan();
}

void Program::run(Run& run) {
  using Clock = std::chrono::steady_clock;
  for (PhaseTime& phase : phases_) phase.seconds = 0;
  auto before = Clock::now();
  for (Piece& piece : pieces_) {
    piece.work->run(run);
    const auto after = Clock::now();
    phases_[piece.phase].seconds += std::chrono::duration<double>(after - before).count();
    before = after;
  }
}

Tensor* Program::find(const std::string& name) {
  const int value = graph_->find(name);
  if (value < 0 || tensors_[static_cast<size_t>(value)]->data == nullptr) return nullptr;
  return tensors_[static_cast<size_t>(value)].get();
}

Tensor& Program::need(const std::string& name, DataType type, const Shape& shape) {
  Tensor* tensor = find(name);
  if (tensor == nullptr || tensor->type != type || tensor->shape != shape) {
    throw Error(Status::artifacts, graph_->path() + ": value '" + name + "' " + to_text(shape) + " expected, found " +
                                       (tensor == nullptr ? "none" : to_text(tensor->shape)) +
                                       "; export the artifacts again");
  }
  return *tensor;
}

std::string Program::plan_text() const {
  std::string text = "work, in order (phase: what, for which nodes)\n";
  for (size_t i = 0; i < pieces_.size(); ++i) {
    text += "  " + std::to_string(i + 1) + ". " + phases_[pieces_[i].phase].phase + ": " +
            pieces_[i].work->description() + "  <- " + pieces_[i].nodes + "\n";
  }
  text += "arena: " + std::to_string(arena_.bytes()) + " bytes (offset, bytes, first and last use, value)\n";
  std::vector<std::pair<std::string, Lifetime>> by_place = lifetimes_;
  std::stable_sort(by_place.begin(), by_place.end(),
                   [](const auto& a, const auto& b) { return a.second.offset < b.second.offset; });
  const int last = static_cast<int>(pieces_.size());
  for (const auto& [name, life] : by_place) {
    text += "  " + std::to_string(life.offset) + " " + std::to_string(life.bytes) + " " +
            std::to_string(life.first + 1) + "-" + std::to_string(std::min(life.last + 1, last)) + " " + name + "\n";
  }
  return text;
}

}  // namespace phonograd
