#include "engine/planner.h"

#include <algorithm>
#include <cstring>

#include "operators/adapter_gradient.h"
#include "operators/output_layer.h"

namespace phonograd {

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
  Tensor* step_scratch(const std::string& name, int64_t floats) override {
    return planner_.scratch(name, floats, true);
  }
  int number() const override { return number_; }
  const onnx::Node& source() const override { return *node_.source; }
  const std::vector<int64_t>& integers(size_t index) const override {
    return planner_.graph_.value(node_.inputs[index]).integers;
  }
  const Products& products() const override { return planner_.compute_.products; }

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
  std::vector<MarkedGradient> gradients;
  if (options_.updates) gradients = find_gradients(graph_);
  if (options_.fuse && options_.updates) fuse(gradients);
  for (int node = 0; node < static_cast<int>(graph_.nodes().size()); ++node) {
    const auto layer = layers_.find(node);
    const auto of_adapter = of_adapters_.find(node);
    if (layer != layers_.end()) {
      add_output_layer(layer->second);
    } else if (of_adapter != of_adapters_.end()) {
      add_adapter_gradient(of_adapter->second);
    } else if (fused_nodes_.count(node) == 0) {
      add_node(node);
    }
  }
  if (options_.updates) add_update(gradients);
  lay_out_arena();
  place_inputs();
  resolve_views();
}

void Planner::fuse(std::vector<MarkedGradient>& gradients) {
  std::set<int> stored;  // gradients that an output layer stores, as they are small
  for (const OutputLayer& layer : find_output_layers(graph_)) {
    layers_[layer.at] = layer;
    fused_nodes_.insert(layer.nodes.begin(), layer.nodes.end());
    fused_nodes_.insert(layer.later.begin(), layer.later.end());
    if (layer.weight_gradient >= 0) factored_.insert(layer.weight_gradient);
    if (layer.adapter_gradient >= 0) stored.insert(layer.adapter_gradient);
  }
  for (const AdapterGradient& gradient : find_adapter_gradients(graph_)) {
    of_adapters_[gradient.node] = gradient;
    factored_.insert(gradient.whole.value);
  }
  for (MarkedGradient& gradient : gradients) {
    const auto is_stored = [&](const GradientTerm& term) { return stored.count(term.value) != 0; };
    if (std::any_of(gradient.terms.begin(), gradient.terms.end(), is_stored)) gradient.terms.clear();
    leave_factored(gradient);
  }
}

void Planner::leave_factored(const MarkedGradient& gradient) {
  for (const GradientTerm& term : gradient.terms) {
    factored_.insert(gradient.value);
    factored_.insert(term.value);
    if (term.value != gradient.value) fused_nodes_.insert(graph_.value(gradient.value).producer);
    if (term.form != GradientTerm::Form::factors) fused_nodes_.insert(graph_.value(term.value).producer);
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
  Tensor* owner = program_.tensors_[static_cast<size_t>(root)].get();
  const Value& v = graph_.value(root);
  if (v.is_input || v.constant != nullptr || v.has_integers) return tensor;
  const auto found = lives_.find(owner);
  if (found == lives_.end()) {
    order_.push_back(owner);
    lives_[owner] = {owner->bytes(), now_, now_, 0};
  } else {
    found->second.last = now_;
  }
  return tensor;
}

Tensor* Planner::use_if_there(int value) {
  return value < 0 ? nullptr : use(value);
}

Tensor* Planner::scratch(const std::string& name, int64_t floats, bool kept) {
  program_.tensors_.push_back(std::make_unique<Tensor>(Tensor{name, DataType::float32, {floats}, nullptr}));
  Tensor* tensor = program_.tensors_.back().get();
  order_.push_back(tensor);
  lives_[tensor] = {tensor->bytes(), now_, now_, 0};
  if (kept) kept_.insert(tensor);
  return tensor;
}

void Planner::keep(const Tensor* tensor) {
  const int value = graph_.find(tensor->name);
  kept_.insert(value >= 0 ? program_.tensors_[static_cast<size_t>(graph_.root(value))].get() : tensor);
}

void Planner::add_piece(std::unique_ptr<Operator> work, const std::string& nodes) {
  std::vector<PhaseTime>& phases = program_.phases_;
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
  const Shape& weight = graph_.value(layer.logits.weight).shape;
  const int64_t V = weight[0], H = weight[1], N = graph_.value(layer.logits.hidden).shape[0];
  const int64_t columns = OutputLayerOperator::columns(N);
  OutputLayerTensors t{};
  t.hidden = use(layer.logits.hidden);
  t.weight = use(layer.logits.weight);
  t.bias = use_if_there(layer.logits.bias);
  t.targets = use_if_there(layer.targets);
  t.loss_gradient = use_if_there(layer.loss_gradient);
  t.loss = use_if_there(layer.loss);
  t.low = use_if_there(layer.logits.low);
  t.adapter = use_if_there(layer.logits.adapter);
  t.hidden_gradient = use_if_there(layer.hidden_gradient);
  t.low_gradient = use_if_there(layer.low_gradient);
  t.adapter_gradient = use_if_there(layer.adapter_gradient);
  t.bias_gradient = use_if_there(layer.bias_gradient);
  t.logits = scratch("logits", V * columns, true);
  t.packed_hidden = scratch("packed hidden", static_cast<int64_t>(compute_.products.packed_size(H, N)), false);
  const bool wants_gram = options_.clip_norm > 0 && layer.weight_gradient >= 0 && !smaller_than_factors(V, N, H);
  t.gram = wants_gram ? scratch("gram of logits' gradients", N * N, true) : nullptr;
  t.sums = scratch("sums of exponentials", OutputLayerOperator::sums_floats(V, N), false);
  const int64_t R = t.low == nullptr ? 0 : t.low->shape[1];
  if (R > 0) {
    t.packed_low = scratch("packed low", static_cast<int64_t>(compute_.products.packed_size(R, N)), false);
    t.packed_tokens = scratch("packed tokens", static_cast<int64_t>(compute_.products.packed_size(N, R)), false);
  }
  t.parts = scratch("parts of gradients", OutputLayerOperator::parts_floats(N, H, R), false);
  t.per_token = scratch("log sums", 3 * columns, false);
  keep(t.hidden);
  if (layer.weight_gradient >= 0) made_by_piece_[layer.weight_gradient] = now_;
  DistillationTensors soft;
  if (layer.soft_targets) soft = soft_targets(*layer.soft_targets);
  add_piece(std::make_unique<OutputLayerOperator>(t, LossSettings{layer.mean, layer.ignored},
                                                  layer.soft_targets ? &soft : nullptr),
            std::to_string(layer.nodes.size()) + " nodes around " + graph_.node(layer.nodes[1]).source->name);
  for (int node : layer.later) add_node(node);
}

void Planner::add_adapter_gradient(const AdapterGradient& gradient) {
  const Node& node = graph_.node(gradient.node);
  const Factors factors = factors_of(gradient.whole);
  Tensor* A = use(node.inputs[1]);
  Tensor* low = scratch("low", factors.N * A->shape[0], false);
  add_piece(std::make_unique<AdapterGradientOperator>(factors, A, low, use(node.outputs[0])), node.source->name);
}

DistillationTensors Planner::soft_targets(const OutputLayer::SoftTargets& soft) {
  DistillationTensors t;
  t.given = use_if_there(soft.given);
  if (soft.teacher) {
    t.hidden = use(soft.teacher->hidden);
    t.weight = use(soft.teacher->weight);
    t.bias = use_if_there(soft.teacher->bias);
    t.low = use_if_there(soft.teacher->low);
    t.adapter = use_if_there(soft.teacher->adapter);
  }
  t.log_likelihoods = use(soft.log_likelihoods);
  t.gradient = use(soft.gradient);
  const int64_t N = t.given != nullptr ? t.given->shape[0] : t.hidden->shape[0];
  const int64_t V = t.given != nullptr ? t.given->shape[1] : t.weight->shape[0];
  t.logits = scratch("teacher's logits", V * OutputLayerOperator::columns(N), false);
  if (soft.teacher) {
    const size_t packed = compute_.products.packed_size(t.weight->shape[1], N);
    t.packed_hidden = scratch("packed teacher's hidden", static_cast<int64_t>(packed), false);
    const size_t low = t.low == nullptr ? 0 : compute_.products.packed_size(t.low->shape[1], N);
    if (low > 0) t.packed_low = scratch("packed teacher's low", static_cast<int64_t>(low), false);
  }
  t.sums =
      scratch("sums of teacher's exponentials", OutputLayerOperator::sums_floats(V, N, Distillation::kSums), false);
  return t;
}

ParameterGradient Planner::planned(const MarkedGradient& gradient) {
  ParameterGradient result;
  result.parameter = use(gradient.parameter);
  const auto target = options_.targets.find(result.parameter->name);
  if (target != options_.targets.end()) result.target = target->second;
  if (factored_.count(graph_.root(gradient.value)) == 0) {
    result.dense = use(gradient.value);
    return result;
  }
  for (const GradientTerm& term : gradient.terms) {
    if (term.form == GradientTerm::Form::rows) {
      result.ids = use(term.first);
      result.rows = use(term.second);
    } else {
      result.factors = factors_of(term);
    }
  }
  const Factors& f = result.factors;
  if (options_.clip_norm > 0 && result.has_factors() && smaller_than_factors(f.M, f.N, f.K)) {
    result.dense = scratch("gradient of " + result.parameter->name, f.M * f.K, false);
    result.dense->shape = result.parameter->shape;
  }
  return result;
}

Factors Planner::factors_of(const GradientTerm& term) {
  Factors f;
  const auto piece = made_by_piece_.find(term.value);
  if (piece != made_by_piece_.end()) {
    f = program_.pieces_[static_cast<size_t>(piece->second)].work->factors(term.output);
  } else {
    f.d = use(term.first);
    f.x = use(term.second);
    f.N = f.d->shape[0];
    f.M = f.d->shape[1];
    f.K = f.x->shape[1];
    f.d_row = 1;
    f.d_column = f.M;
  }
  keep(f.d);
  keep(f.x);
  return f;
}

void Planner::add_update(const std::vector<MarkedGradient>& marked) {
  std::vector<ParameterGradient> gradients;
  for (const MarkedGradient& gradient : marked) {
    if (gradient.parameter < 0 || parameters_.count(graph_.value(gradient.parameter).name) == 0) {
      const Node& mark = graph_.node(gradient.node);
      throw Error(Status::artifacts, graph_.path() + ": node '" + mark.source->name + "' (" + mark.source->op +
                                         "): its buffer '" + graph_.value(mark.inputs[0]).name +
                                         "' belongs to no parameter of that shape; export the artifacts again");
    }
    gradients.push_back(planned(gradient));
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

void Planner::lay_out_arena() {
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
    order_[i]->data = program_.arena_.data() + lives[i].offset;
    program_.lifetimes_.emplace_back(order_[i]->name, lives[i]);
  }
}

// What does not change while a program runs, or is set from outside: constants, shapes where they are data, and inputs.
void Planner::place_inputs() {
  std::vector<Tensor*> placed;
  std::vector<const void*> contents;  // of each: nullptr for zeros
  std::vector<Lifetime> lives;        // all at once
  for (size_t i = 0; i < graph_.values().size(); ++i) {
    const Value& value = graph_.values()[i];
    Tensor* tensor = program_.tensors_[i].get();
    const auto parameter = value.is_input ? parameters_.find(value.name) : parameters_.end();
    if (parameter != parameters_.end()) tensor->data = parameter->second;
    const void* content = value.integers.data();
    if (value.constant != nullptr) content = value.constant->bytes.data();
    const bool wanted = value.is_input ? is_read(graph_, static_cast<int>(i)) : content != nullptr;
    if (tensor->data != nullptr || !wanted || value.view_of >= 0) continue;
    placed.push_back(tensor);
    contents.push_back(content);
    lives.push_back({tensor->bytes(), 0, 0, 0});
  }
  program_.inputs_ = Memory(lay_out(lives));
  for (size_t i = 0; i < placed.size(); ++i) {
    placed[i]->data = program_.inputs_.data() + lives[i].offset;
    if (contents[i] != nullptr && lives[i].bytes > 0) std::memcpy(placed[i]->data, contents[i], lives[i].bytes);
  }
}

void Planner::resolve_views() {
  for (size_t i = 0; i < graph_.values().size(); ++i) {
    const int root = graph_.root(static_cast<int>(i));
    program_.tensors_[i]->data = program_.tensors_[static_cast<size_t>(root)]->data;
  }
}

}  // namespace phonograd
