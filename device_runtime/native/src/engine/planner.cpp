#include "engine/planner.h"

#include <algorithm>
#include <cstring>

#include "operators/output_layer.h"

namespace phonograd {

namespace {

constexpr const char* kBufferSuffix = "_grad.accumulation.buffer";

const onnx::Attribute* find_attribute(const onnx::Node& node, const char* name) {
  for (const onnx::Attribute& attribute : node.attributes) {
    if (attribute.name == name) return &attribute;
  }
  return nullptr;
}

}  // namespace

// A node's tensors, as its operator asks for them.
class PlannedNode : public NodeBuilder {
 public:
  PlannedNode(Planner& planner, int node) : planner_(planner), number_(node), node_(planner.graph_.node(node)) {}

  Tensor* input(size_t index) override {
    return index < node_.inputs.size() && node_.inputs[index] >= 0 ? planner_.use(node_.inputs[index]) : nullptr;
  }
  Tensor* output(size_t index) override {
    const bool there = index < node_.outputs.size() && node_.outputs[index] >= 0;
    return there && planner_.has_memory(node_.outputs[index]) ? planner_.use(node_.outputs[index]) : nullptr;
  }
  Tensor* scratch(const std::string& name, int64_t floats) override { return planner_.scratch(name, floats, false); }
  Tensor* kept(const std::string& name, int64_t floats) override { return planner_.scratch(name, floats, true); }
  int number() const override { return number_; }
  int64_t attribute(const char* name, int64_t otherwise) const override {
    const onnx::Attribute* found = find_attribute(*node_.source, name);
    return found == nullptr ? otherwise : found->integer;
  }
  float attribute_real(const char* name, float otherwise) const override {
    const onnx::Attribute* found = find_attribute(*node_.source, name);
    return found == nullptr ? otherwise : found->real;
  }
  std::string attribute_text(const char* name, const char* otherwise) const override {
    const onnx::Attribute* found = find_attribute(*node_.source, name);
    return found == nullptr ? otherwise : found->text;
  }
  const std::vector<int64_t>& integers(size_t index) const override {
    return planner_.graph_.value(node_.inputs[index]).integers;
  }
  const Compute& compute() const override { return planner_.compute_; }

 private:
  Planner& planner_;
  int number_;
  const Node& node_;
};

Planner::Planner(Program& program, const Compute& compute, const std::map<std::string, float*>& parameters,
                 const ProgramOptions& options)
    : program_(program), graph_(program.graph()), compute_(compute), parameters_(parameters), options_(options) {}

void Planner::plan() {
  for (const Value& value : graph_.values()) {
    program_.tensors_.push_back(std::make_unique<Tensor>(Tensor{value.name, value.type, value.shape, nullptr}));
  }
  std::map<int, OutputLayer> layers;
  if (options_.fuse && options_.updates) {
    for (const OutputLayer& layer : find_output_layers(graph_)) {
      layers[layer.at] = layer;
      fused_nodes_.insert(layer.nodes.begin(), layer.nodes.end());
      factored_.insert(layer.weight_gradient);
    }
    choose_factored_gradients();
  }
  for (int node = 0; node < static_cast<int>(graph_.nodes().size()); ++node) {
    const auto layer = layers.find(node);
    if (layer != layers.end()) {
      add_output_layer(layer->second);
    } else if (fused_nodes_.count(node) == 0) {
      add_node(node);
    }
  }
  if (options_.updates) add_update();
  assign_memory();
}

// A gradient that only the update reads need not be stored if it is a product or touches few rows.
void Planner::choose_factored_gradients() {
  for (const Node& node : graph_.nodes()) {
    if (node.source->op != "InPlaceAccumulatorV2") continue;
    const int gradient = graph_.root(node.inputs[1]), producer = graph_.value(gradient).producer;
    if (producer < 0 || graph_.users(gradient).size() != 1 || graph_.value(gradient).is_output) continue;
    if (graph_.root(node.inputs[1]) != node.inputs[1]) continue;
    const std::string& op = graph_.node(producer).source->op;
    const std::vector<int>& outputs = graph_.node(producer).outputs;
    const PlannedNode made(*this, producer);
    const bool weights = (op == "LSTMGrad" || op == "GRUGrad") && (outputs[1] == gradient || outputs[2] == gradient);
    const bool product = op == "Gemm" && made.attribute("transA", 0) == 1 && made.attribute("transB", 0) == 0 &&
                         made.attribute_real("alpha", 1) == 1 && graph_.node(producer).inputs.size() == 2;
    if (weights || product || op == "GatherGrad") factored_.insert(gradient);
    if (product || op == "GatherGrad") fused_nodes_.insert(producer);
  }
}

bool Planner::has_memory(int value) const {
  if (factored_.count(value) != 0) return false;
  const Value& v = graph_.value(value);
  return v.is_output || !v.consumers.empty() || !options_.fuse;
}

Tensor* Planner::use(int value) {
  Tensor* tensor = program_.tensors_[static_cast<size_t>(value)].get();
  const int root = graph_.root(value);
  const Tensor* owner = program_.tensors_[static_cast<size_t>(root)].get();
  const Value& v = graph_.value(root);
  if (v.is_input || v.constant != nullptr || v.has_integers) return tensor;
  const auto found = lives_.find(owner);
  if (found == lives_.end()) {
    order_.push_back(owner);
    lives_[owner] = {static_cast<size_t>(owner->elements()) * size_of(owner->type), now_, now_, 0};
  } else {
    found->second.last = now_;
  }
  return tensor;
}

Tensor* Planner::scratch(const std::string& name, int64_t floats, bool kept) {
  program_.tensors_.push_back(std::make_unique<Tensor>(Tensor{name, DataType::float32, {floats}, nullptr}));
  Tensor* tensor = program_.tensors_.back().get();
  order_.push_back(tensor);
  lives_[tensor] = {static_cast<size_t>(floats) * sizeof(float), now_, now_, 0};
  if (kept) kept_.insert(tensor);
  return tensor;
}

void Planner::keep(const Tensor* tensor) {
  const int value = graph_.find(tensor->name);
  kept_.insert(value >= 0 ? program_.tensors_[static_cast<size_t>(graph_.root(value))].get() : tensor);
}

void Planner::add_piece(std::unique_ptr<Operator> work, const std::string& nodes) {
  std::vector<PhaseSeconds>& phases = program_.phases_;
  size_t phase = 0;
  while (phase < phases.size() && phases[phase].phase != work->phase()) ++phase;
  if (phase == phases.size()) phases.push_back({work->phase(), 0});
  program_.pieces_.push_back({std::move(work), phase, nodes});
  ++now_;
}

void Planner::add_node(int node) {
  const onnx::Node& source = *graph_.node(node).source;
  const OperatorType* type = find_operator(source.op, source.domain);
  if (type->make == nullptr) return;
  bool wanted = false;
  for (int output : graph_.node(node).outputs) {
    if (output < 0) continue;
    wanted = wanted || has_memory(output) || factored_.count(output) != 0;
    if (factored_.count(output) != 0) made_by_piece_[output] = now_;
  }
  if (!wanted) return;
  PlannedNode builder(*this, node);
  // The first output of an operator that runs is always there.
  add_piece(type->make(builder), source.name.empty() ? source.op : source.name);
}

void Planner::add_output_layer(const OutputLayer& layer) {
  const Shape& weight = graph_.value(layer.weight).shape;
  const int64_t V = weight[0], H = weight[1], N = graph_.value(layer.hidden).shape[0];
  const int64_t columns = OutputLayerOperator::columns(N);
  OutputLayerTensors t;
  t.hidden = use(layer.hidden);
  t.weight = use(layer.weight);
  t.bias = layer.bias < 0 ? nullptr : use(layer.bias);
  t.targets = use(layer.targets);
  t.loss_gradient = use(layer.loss_gradient);
  t.loss = use(layer.loss);
  t.hidden_gradient = use(layer.hidden_gradient);
  t.bias_gradient = layer.bias < 0 ? nullptr : use(layer.bias_gradient);
  t.logits = scratch("logits", V * columns, true);
  t.packed_hidden = scratch("packed hidden", static_cast<int64_t>(compute_.packed_size(H, N)), false);
  t.gram = options_.clip_norm > 0 ? scratch("gram of logits' gradients", N * N, true) : nullptr;
  t.sums = scratch("sums of exponentials", OutputLayerOperator::sums_floats(V, N), false);
  t.parts = scratch("parts of gradients", OutputLayerOperator::parts_floats(N, H), false);
  t.per_token = scratch("log sums", 3 * columns, false);
  keep(t.hidden);
  LossSettings settings;
  const onnx::Node& loss = *graph_.node(layer.nodes[1]).source;
  const onnx::Attribute* reduction = find_attribute(loss, "reduction");
  const onnx::Attribute* ignored = find_attribute(loss, "ignore_index");
  settings.mean = reduction == nullptr || reduction->text == "mean";
  if (ignored != nullptr) settings.ignored = ignored->integer;
  made_by_piece_[layer.weight_gradient] = now_;
  add_piece(std::make_unique<OutputLayerOperator>(t, settings),
            std::to_string(layer.nodes.size()) + " nodes around " + loss.name);
}

ParameterGradient Planner::gradient_of(int parameter, int gradient) {
  ParameterGradient result;
  result.parameter = use(parameter);
  const int root = graph_.root(gradient);
  if (factored_.count(root) == 0) {
    result.form = ParameterGradient::Form::dense;
    result.dense = use(gradient);
    return result;
  }
  const Node& producer = graph_.node(graph_.value(root).producer);
  if (producer.source->op == "GatherGrad") {
    result.form = ParameterGradient::Form::rows;
    result.ids = use(producer.inputs[1]);
    result.rows = use(producer.inputs[2]);
    return result;
  }
  result.form = ParameterGradient::Form::factored;
  const auto piece = made_by_piece_.find(root);
  if (piece != made_by_piece_.end()) {
    const size_t index = static_cast<size_t>(std::find(producer.outputs.begin(), producer.outputs.end(), root) -
                                             producer.outputs.begin());
    result.factors = program_.pieces_[static_cast<size_t>(piece->second)].work->factors(index);
  } else {  // Gemm(D, X, transA=1): D [N, M], X [N, K]
    Factors& f = result.factors;
    f.d = use(producer.inputs[0]);
    f.x = use(producer.inputs[1]);
    f.N = f.d->shape[0];
    f.M = f.d->shape[1];
    f.K = f.x->shape[1];
    f.d_row = 1;
    f.d_column = f.M;
  }
  keep(result.factors.d);
  keep(result.factors.x);
  return result;
}

void Planner::add_update() {
  std::vector<ParameterGradient> gradients;
  for (const Node& node : graph_.nodes()) {
    if (node.source->op != "InPlaceAccumulatorV2") continue;
    const std::string& buffer = graph_.value(node.inputs[0]).name;
    const size_t suffix = std::strlen(kBufferSuffix);
    const bool named = buffer.size() > suffix && buffer.compare(buffer.size() - suffix, suffix, kBufferSuffix) == 0;
    const int parameter = named ? graph_.find(buffer.substr(0, buffer.size() - suffix)) : -1;
    if (parameter < 0 || parameters_.count(graph_.value(parameter).name) == 0 ||
        graph_.value(parameter).shape != graph_.value(node.inputs[1]).shape) {
      throw Error(Status::artifacts, graph_.path() + ": node '" + node.source->name +
                                         "' (InPlaceAccumulatorV2): its buffer '" + buffer +
                                         "' belongs to no parameter of that shape; export the artifacts again");
    }
    gradients.push_back(gradient_of(parameter, node.inputs[1]));
  }
  if (gradients.empty()) {
    throw Error(Status::artifacts, graph_.path() + ": no gradients to train with; export the artifacts again");
  }
  const int loss = graph_.find("loss");
  const bool has_loss = loss >= 0 && graph_.value(loss).is_output && element_count(graph_.value(loss).shape) == 1;
  Tensor* memory = scratch("norms", Update::scratch_floats(gradients), false);
  add_piece(std::make_unique<Update>(std::move(gradients), has_loss ? use(loss) : nullptr, options_.clip_norm, memory),
            "optimizer");
}

void Planner::assign_memory() {
  for (size_t i = 0; i < graph_.values().size(); ++i) {
    const Value& value = graph_.values()[i];
    if (value.is_output &&
        lives_.count(program_.tensors_[static_cast<size_t>(graph_.root(static_cast<int>(i)))].get()) != 0) {
      keep(program_.tensors_[i].get());
    }
  }
  std::vector<Lifetime> lives;
  for (const Tensor* tensor : order_) {
    Lifetime life = lives_[tensor];
    if (kept_.count(tensor) != 0) life.last = now_;
    if (!options_.fuse) life.first = 0, life.last = now_;
    lives.push_back(life);
  }
  program_.arena_ = Memory(lay_out(lives));
  for (size_t i = 0; i < order_.size(); ++i) {
    const_cast<Tensor*>(order_[i])->data = program_.arena_.data() + lives[i].offset;
    program_.lifetimes_.emplace_back(order_[i]->name, lives[i]);
  }
  // Inputs that something reads; gradient buffers are named in the graph and used by nobody.
  std::vector<std::pair<Tensor*, size_t>> inputs;
  size_t bytes = 0;
  for (size_t i = 0; i < graph_.values().size(); ++i) {
    const Value& value = graph_.values()[i];
    Tensor& tensor = *program_.tensors_[i];
    if (value.has_integers) tensor.data = const_cast<int64_t*>(value.integers.data());  // a shape, where it is data
    if (value.constant != nullptr) tensor.data = const_cast<char*>(value.constant->bytes.data());
    if (!value.is_input) continue;
    const auto bound = parameters_.find(value.name);
    bool read = false;
    for (int consumer : value.consumers) {
      const Node& node = graph_.node(consumer);
      read = read || node.source->op != "InPlaceAccumulatorV2" || node.inputs[1] == static_cast<int>(i);
    }
    if (bound != parameters_.end()) {
      tensor.data = bound->second;
    } else if (read) {
      inputs.emplace_back(&tensor, bytes);
      bytes += (static_cast<size_t>(tensor.elements()) * size_of(tensor.type) + 63) / 64 * 64;
    }
  }
  program_.inputs_ = Memory(bytes);
  for (const auto& [tensor, offset] : inputs) tensor->data = program_.inputs_.data() + offset;
  for (size_t i = 0; i < graph_.values().size(); ++i) {
    const int root = graph_.root(static_cast<int>(i));
    program_.tensors_[i]->data = program_.tensors_[static_cast<size_t>(root)]->data;
  }
}

}  // namespace phonograd
