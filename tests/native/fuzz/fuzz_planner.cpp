// The planner on random graphs and on changed exported ones: each is refused with Error(artifacts), or runs, fused and
// unfused, to the same losses, outputs and parameters.
//
// The input: a byte with the number of decisions, the decisions, then an ONNX model; without one, a random graph. With
// FUZZ_PRINT in the environment, the nodes of every graph are printed.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/program.h"
#include "formats/onnx_reader.h"
#include "graph/packing.h"
#include "random_graph.h"

using namespace phonograd;

namespace {

constexpr int kSteps = 2;
constexpr int64_t kMostFloats = 1 << 18;  // of a graph: what is larger takes too long
constexpr float kLargest = 100;           // of values that are compared: larger ones lose too many digits
constexpr double kTolerance = 1e-4;       // by the square of the largest value: products of two

void expect(bool good, const std::string& what) {
  if (good) return;
  std::fprintf(stderr, "%s\n", what.c_str());
  std::abort();
}

struct How {
  int threads;
  float clip_norm;
  bool odd_ids;  // some ids belong to no row of a small table
  bool packed;
};

using Values = std::map<std::string, std::vector<float>>;

struct Outcome {
  Values values;  // outputs and parameters after all steps; unfused, the largest of all values
  float largest = 0;
  bool refused = false;
};

// Small numbers that depend on name and place only.
float small(const std::string& name, int64_t place) {
  uint32_t hash = 2166136261u + static_cast<uint32_t>(place) * 2654435761u;
  for (const char byte : name) hash = (hash ^ static_cast<uint8_t>(byte)) * 16777619u;
  return static_cast<float>(hash >> 16) / 65536.0f - 0.5f;
}

void fill(Tensor& tensor, const How& how) {
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const auto number = static_cast<int64_t>((small(tensor.name, i) + 0.5f) * 4);
    if (tensor.type == DataType::float32) tensor.floats()[i] = small(tensor.name, i);
    if (tensor.type == DataType::int64) tensor.integers()[i] = number - (how.odd_ids ? 1 : 0);
    if (tensor.type == DataType::boolean) tensor.booleans()[i] = number & 1;
  }
}

bool is_small(const Graph& graph) {
  int64_t floats = 0;
  for (const Value& value : graph.values()) {
    floats += element_count(value.shape);
    if (floats > kMostFloats) return false;
  }
  return true;
}

Compute& compute(int threads) {
  static std::map<int, std::unique_ptr<Compute>> computes;
  std::unique_ptr<Compute>& made = computes[threads];
  if (made == nullptr) made = std::make_unique<Compute>(threads, false, kernel_set(""));
  return *made;
}

std::vector<float> copy_of(const Tensor& tensor) {
  std::vector<float> copy;
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    if (tensor.type == DataType::float32) copy.push_back(tensor.floats()[i]);
    if (tensor.type == DataType::boolean) copy.push_back(tensor.booleans()[i]);
    if (tensor.type == DataType::int64) copy.push_back(static_cast<float>(tensor.integers()[i]));
  }
  return copy;
}

// Steps of a graph that has been planned. Inputs are filled again in each, as an engine does it.
void run_steps(Program& program, const How& how, std::map<std::string, std::vector<float>>& parameters,
               Outcome& outcome) {
  Compute& with = compute(how.threads);
  Values before;
  for (int step = 0; step < kSteps; ++step) {
    for (const Value& value : program.graph().values()) {
      Tensor* tensor = program.find(value.name);
      if (!value.is_input || tensor == nullptr || parameters.count(value.name) != 0) continue;
      if (step == 0) fill(*tensor, how);
      if (step == 0) before[value.name] = copy_of(*tensor);
    }
    Run run{with.pool, with.kernels, with.products, 0.25f, 7, static_cast<uint64_t>(step)};
    program.run(run);
    for (const auto& [name, values] : before) {
      expect(copy_of(*program.find(name)) == values, "input '" + name + "' changed while it was run");
    }
    for (const Value& value : program.graph().values()) {
      const Tensor* tensor = program.find(value.name);
      if (tensor == nullptr) continue;
      const std::vector<float> values = copy_of(*tensor);
      for (const float x : values) {
        outcome.largest = std::isfinite(x) ? std::max(outcome.largest, std::fabs(x)) : INFINITY;
      }
      if (value.is_output) outcome.values[value.name + "." + std::to_string(step)] = values;
    }
  }
  for (auto& [name, values] : parameters) outcome.values[name] = values;
}

Outcome outcome_of(onnx::Model model, const How& how, bool fuse) {
  Outcome outcome;
  std::map<std::string, std::vector<float>> parameters;
  std::map<std::string, float*> memory;
  std::unique_ptr<Program> program;
  try {
    if (how.packed) pack_candidates(model, 4);
    auto graph = std::make_unique<Graph>(std::move(model), FreeSizes{{"C", 4}}, check_node);
    if (!is_small(*graph)) throw Error(Status::artifacts, "too large");
    for (const MarkedGradient& gradient : find_gradients(*graph)) {
      if (gradient.parameter < 0) continue;
      const Value& value = graph->value(gradient.parameter);
      std::vector<float>& values = parameters[value.name];
      values.resize(static_cast<size_t>(element_count(value.shape)));
      for (size_t i = 0; i < values.size(); ++i) values[i] = small(value.name, static_cast<int64_t>(i));
      memory[value.name] = values.data();
    }
    program = std::make_unique<Program>(std::move(graph), compute(how.threads), memory,
                                        ProgramOptions{fuse, true, how.clip_norm});
    expect(!program->plan_text().empty(), "a plan without a text");
  } catch (const Error& error) {
    expect(error.status() == Status::artifacts, error.what());
    outcome.refused = true;
    return outcome;
  }
  try {
    run_steps(*program, how, parameters, outcome);
  } catch (const Error& error) {  // an id, or a norm that is not finite
    expect(error.status() == Status::training, error.what());
    outcome.refused = true;
  }
  return outcome;
}

void compare(const Outcome& fused, const Outcome& single) {
  if (fused.refused || single.refused || single.largest > kLargest) return;
  const double tolerance = kTolerance * std::max(1.0, static_cast<double>(single.largest) * single.largest);
  for (const auto& [name, values] : single.values) {
    const auto found = fused.values.find(name);
    expect(found != fused.values.end() && found->second.size() == values.size(), "no value '" + name + "' if fused");
    for (size_t i = 0; i < values.size(); ++i) {
      const float other = found->second[i];
      expect(std::fabs(static_cast<double>(other) - static_cast<double>(values[i])) <= tolerance,
             "'" + name + "' at " + std::to_string(i) + ": " + std::to_string(other) + " fused, " +
                 std::to_string(values[i]) + " unfused, of at most " + std::to_string(single.largest));
    }
  }
}

void print(const onnx::Model& model) {
  for (const onnx::Node& node : model.nodes) {
    std::string line = node.op;
    for (const std::string& name : node.inputs) line += " " + (name.empty() ? "-" : name);
    line += " ->";
    for (const std::string& name : node.outputs) line += " " + (name.empty() ? "-" : name);
    std::fprintf(stderr, "%s\n", line.c_str());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const size_t count = size == 0 ? 0 : std::min<size_t>(data[0], size - 1), rest = size == 0 ? 0 : 1 + count;
  Decisions decisions(data + (size == 0 ? 0 : 1), count);
  onnx::Model model;
  const How how = {decisions.one_in(16) ? 3 : 1, decisions.one_in(2) ? 0.5f : 0, decisions.one_in(4),
                   decisions.one_in(8)};
  try {
    model = rest < size ? onnx::parse_model("fuzz", data + rest, size - rest) : random_graph(decisions);
  } catch (const Error& error) {
    expect(error.status() == Status::artifacts, error.what());
    return 0;
  }
  change_graph(model, decisions);
  if (std::getenv("FUZZ_PRINT") != nullptr) print(model);
  compare(outcome_of(model, how, true), outcome_of(model, how, false));
  return 0;
}

// libFuzzer's own mutations of the decisions; the model, which they would only break, stays as it is.
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned int) {
  const size_t count = size == 0 ? 0 : std::min<size_t>(data[0], size - 1), rest = size == 0 ? 0 : size - 1 - count;
  uint8_t decisions[255] = {};
  if (count > 0) std::memcpy(decisions, data + 1, count);
  if (most < 1 + rest) return size;
  const size_t now = LLVMFuzzerMutate(decisions, count, std::min<size_t>(sizeof decisions, most - 1 - rest));
  if (rest > 0) std::memmove(data + 1 + now, data + 1 + count, rest);
  data[0] = static_cast<uint8_t>(now);
  std::memcpy(data + 1, decisions, now);
  return 1 + now + rest;
}
