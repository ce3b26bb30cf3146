#include "random_graph.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace phonograd {

namespace {

using onnx::Attribute;
using onnx::DataType;
using Shape = std::vector<int64_t>;
using Names = std::vector<std::string>;

constexpr const char* kMicrosoft = "com.microsoft";
constexpr int64_t kSizes[] = {1, 2, 3, 4, 5, 7, 17};
constexpr int64_t kIgnored = -1;

Attribute integer(const char* name, int64_t value) {
  Attribute attribute;
  attribute.name = name;
  attribute.integer = value;
  return attribute;
}

Attribute text(const char* name, const char* value) {
  Attribute attribute;
  attribute.name = name;
  attribute.kind = Attribute::Kind::text;
  attribute.text = value;
  return attribute;
}

struct Known {
  std::string name;
  DataType type;
  Shape shape;
};

int64_t elements(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

class Maker {
 public:
  explicit Maker(Decisions& decisions) : d_(decisions) { model_.path = "random"; }

  onnx::Model make() {
    add_nodes();
    if (!marked_) mark(floats(any_shape(2)));
    for (const Known& value : values_) {
      if (!value.name.empty() && d_.one_in(6)) output(value.name);
    }
    if (has_loss_) output("loss");
    return std::move(model_);
  }

 private:
  void add_nodes() {
    for (size_t steps = 1 + d_.below(12); steps > 0 && d_.left(); --steps) {
      switch (d_.below(12)) {
        case 0:
          product();
          break;
        case 1:
          elementwise();
          break;
        case 2:
          view();
          break;
        case 3:
          sum();
          break;
        case 4:
          embedding();
          break;
        case 5:
          softmax();
          break;
        case 6:
        case 7:
          output_layer();
          break;
        case 8:
          recurrent();
          break;
        case 9:
          dropout();
          break;
        case 10:
          integers();
          break;
        default:
          mark(floats(any_shape(1 + d_.below(3))));
      }
    }
  }

  int64_t size() { return kSizes[d_.below(std::size(kSizes))]; }
  Shape any_shape(size_t rank) {
    Shape shape;
    for (size_t i = 0; i < rank; ++i) shape.push_back(size());
    return shape;
  }
  std::string fresh(const char* stem) { return stem + std::to_string(count_++); }

  std::string input(const Shape& shape, DataType type = DataType::float32, const char* stem = "x") {
    return named_input(fresh(stem), shape, type);
  }
  std::string named_input(const std::string& name, const Shape& shape, DataType type) {
    onnx::ValueInfo info;
    info.name = name;
    info.type = type;
    info.has_shape = true;
    for (const int64_t n : shape) info.shape.push_back({n, ""});
    model_.inputs.push_back(info);
    values_.push_back({name, type, shape});
    return name;
  }

  std::string constant(DataType type, const Shape& shape, const void* values) {
    onnx::Constant made{fresh("c"), type, shape, {}};
    made.bytes.assign(static_cast<const char*>(values), static_cast<size_t>(elements(shape)) * onnx::size_of(type));
    model_.constants.push_back(made);
    return made.name;
  }
  std::string constant(const Shape& numbers) {
    return constant(DataType::int64, {static_cast<int64_t>(numbers.size())}, numbers.data());
  }

  // A value of that type and shape: an earlier one, or a new input. Now and then one that does not fit.
  std::string value(DataType type, const Shape& shape) {
    if (!values_.empty() && d_.one_in(64)) return values_[d_.below(values_.size())].name;
    std::vector<const Known*> fitting;
    for (const Known& known : values_) {
      if (known.type == type && known.shape == shape) fitting.push_back(&known);
    }
    if (fitting.empty() || d_.one_in(4)) return input(shape, type);
    return fitting[fitting.size() - 1 - d_.below(fitting.size())]->name;
  }
  std::string floats(const Shape& shape) { return value(DataType::float32, shape); }
  // An earlier matrix, so that graphs grow in depth, or a new one.
  Known any(DataType type, size_t rank) {
    for (size_t tries = 0; tries < 4 && !values_.empty(); ++tries) {
      const Known& known = values_[values_.size() - 1 - d_.below(values_.size())];
      if (known.type == type && known.shape.size() == rank && elements(known.shape) <= 4096) return known;
    }
    const Shape shape = any_shape(rank);
    return {input(shape, type), type, shape};
  }

  // Adds a node; each output has a name, a type and a shape. An empty stem leaves it out.
  Names node(const char* op, const char* domain, Names inputs, std::vector<Known> outputs,
             std::vector<Attribute> attributes = {}) {
    onnx::Node made;
    made.name = fresh("n");
    made.op = op;
    made.domain = domain;
    made.inputs = std::move(inputs);
    made.attributes = std::move(attributes);
    for (Known& result : outputs) {
      if (result.name == "loss") {
        has_loss_ = true;
      } else if (!result.name.empty()) {
        result.name = fresh(result.name.c_str());
      }
      made.outputs.push_back(result.name);
      if (!result.name.empty()) values_.push_back(result);
    }
    model_.nodes.push_back(made);
    return made.outputs;
  }
  std::string node(const char* op, const char* domain, Names inputs, const Shape& shape,
                   std::vector<Attribute> attributes = {}) {
    return node(op, domain, std::move(inputs), {{"v", DataType::float32, shape}}, std::move(attributes))[0];
  }

  void output(const std::string& name) {
    onnx::ValueInfo info;
    info.name = name;
    model_.outputs.push_back(info);
  }

  // The gradient of a parameter; of one that is used already where one fits.
  void mark(const std::string& gradient) {
    Shape shape;
    for (const Known& known : values_) {
      if (known.name == gradient) shape = known.shape;
    }
    std::string parameter;
    for (const onnx::ValueInfo& info : model_.inputs) {
      Shape of_input;
      for (const onnx::Dimension& dimension : info.shape) of_input.push_back(dimension.size);
      if (info.type == DataType::float32 && of_input == shape && info.name.back() != 'r' && !d_.one_in(4)) {
        parameter = info.name;
      }
    }
    if (parameter.empty()) parameter = input(shape, DataType::float32, "w");
    const std::string buffer = parameter + "_grad.accumulation.buffer";
    bool again = false;
    for (const onnx::ValueInfo& info : model_.inputs) again = again || info.name == buffer;
    if (!again) {
      named_input(buffer, shape, DataType::float32);
      values_.pop_back();  // seldom read by anything else: change_graph sees to that
    }
    node("InPlaceAccumulatorV2", kMicrosoft, {buffer, gradient}, {{"m", DataType::boolean, {1}}});
    if (!d_.one_in(16)) values_.pop_back();
    marked_ = true;
  }

  void product() {
    const Known a = any(DataType::float32, 2);
    const bool a_transposed = d_.one_in(2), b_transposed = d_.one_in(2);
    const int64_t M = a.shape[a_transposed], K = a.shape[!a_transposed], N = size();
    if (d_.one_in(5)) {
      node("Transpose", "", {a.name}, Shape{a.shape[1], a.shape[0]}, {perm()});
      return;
    }
    if (d_.one_in(5)) {
      node("MatMul", "", {a.name, floats({a.shape[1], N})}, Shape{a.shape[0], N});
      return;
    }
    Names inputs = {a.name, floats(b_transposed ? Shape{N, K} : Shape{K, N})};
    const Shape addends[] = {{M, N}, {1, N}, {N}, {1}, {M, 1}};
    if (d_.one_in(3)) inputs.push_back(floats(addends[d_.below(std::size(addends))]));
    const std::string y =
        node("Gemm", "", inputs, Shape{M, N}, {integer("transA", a_transposed), integer("transB", b_transposed)});
    if (d_.one_in(3)) mark(y);
  }
  static Attribute perm() {
    Attribute attribute = integer("perm", 0);
    attribute.kind = Attribute::Kind::integers;
    attribute.integers = {1, 0};
    return attribute;
  }

  void elementwise() {
    const Known a = any(DataType::float32, d_.below(4));
    const Shape& shape = a.shape;
    switch (d_.below(8)) {
      case 0:
        node("Add", "", {a.name, floats(shape)}, shape);
        break;
      case 1:
        node("Sub", "", {a.name, floats(shape)}, shape);
        break;
      case 2:
        node("Mul", "", {a.name, floats(shape.empty() ? Shape{} : Shape{shape.back()})}, shape);
        break;
      case 3:
        node("Sum", "", {a.name, floats(shape), floats(shape)}, shape);
        break;
      case 4:
        node("Neg", "", {a.name}, shape);
        break;
      case 5:
        node("Relu", "", {a.name}, shape);
        break;
      case 6:
        node("ReluGrad", kMicrosoft, {a.name, input(shape)}, shape);
        break;
      default:
        node("Div", "", {a.name, input({1})}, shape.empty() ? Shape{1} : shape);
    }
  }

  void view() {
    const Known a = any(d_.one_in(8) ? DataType::int64 : DataType::float32, 1 + d_.below(3));
    const auto last = static_cast<int64_t>(a.shape.size());
    Shape longer = a.shape, to = a.shape;
    longer.push_back(1);
    const auto see = [&](const char* op, const Names& inputs, const Shape& shape) {
      node(op, "", inputs, {{"v", a.type, shape}});
    };
    switch (d_.below(6)) {
      case 0:
        return see("Identity", {a.name}, a.shape);
      case 1:
        return see("Reshape", {a.name, constant({elements(a.shape)})}, {elements(a.shape)});
      case 2:
        std::swap(to.front(), to.back());
        return see("Reshape", {a.name, constant(to)}, to);
      case 3:
        see("Unsqueeze", {a.name, constant({last})}, longer);
        return see("Squeeze", {values_.back().name, constant({last})}, a.shape);
      case 4:
        node("Shape", "", {a.name}, {{"s", DataType::int64, {last}}});
        values_.pop_back();
        return;
      default:
        if (a.type == DataType::float32) node("Expand", "", {a.name, constant({2, 1, 1})}, expanded(a.shape));
    }
  }
  static Shape expanded(const Shape& shape) {
    Shape result = shape;
    while (result.size() < 3) result.insert(result.begin(), 1);
    result[result.size() - 3] = result[result.size() - 3] == 1 ? 2 : result[result.size() - 3];
    return result;
  }

  void sum() {
    const Known a = any(DataType::float32, 1 + d_.below(3));
    const size_t axis = d_.below(a.shape.size());
    const bool keep = d_.one_in(2);
    Shape shape = a.shape;
    if (keep) shape[axis] = 1;
    if (!keep) shape.erase(shape.begin() + static_cast<int64_t>(axis));
    const std::string y =
        node("ReduceSum", "", {a.name, constant({static_cast<int64_t>(axis)})}, shape, {integer("keepdims", keep)});
    if (d_.one_in(4)) mark(y);
  }

  void embedding() {
    const Known ids = any(DataType::int64, 1 + d_.below(2));
    const int64_t V = 4 + size(), E = size();
    Shape rows = ids.shape;
    rows.push_back(E);
    if (d_.one_in(2)) {
      node("Gather", "", {floats({V, E}), ids.name}, rows);
      return;
    }
    const std::string dy = floats(rows);
    for (size_t times = 1 + d_.below(2); times > 0; --times) {
      const Names inputs = {constant({V, E}), ids.name, dy};
      mark(node("GatherGrad", kMicrosoft, inputs, Shape{V, E}, {integer("axis", 0)}));
    }
  }

  void softmax() {
    const Known a = any(DataType::float32, 2);
    const bool logarithm = d_.one_in(2);
    const std::string y = node(logarithm ? "LogSoftmax" : "Softmax", "", {a.name}, a.shape);
    if (d_.one_in(2)) return;
    node(logarithm ? "LogSoftmaxGrad_13" : "SoftmaxGrad_13", kMicrosoft, {floats(a.shape), y}, a.shape);
  }

  // The nodes that the planner runs as one; each decision that is not 0 makes them another pattern.
  void output_layer() {
    const Known hidden = any(DataType::float32, 2);
    const int64_t N = hidden.shape[0], H = hidden.shape[1], V = 4 + size();
    const std::string weight = d_.one_in(4) ? floats({V, H}) : input({V, H}, DataType::float32, "w");
    Names inputs = {hidden.name, weight};
    if (d_.one_in(2)) inputs.push_back(d_.one_in(4) ? floats({1}) : input({V}, DataType::float32, "b"));
    std::string logits = node("Gemm", "", inputs, Shape{N, V}, {integer("transB", 1)});
    if (d_.one_in(4)) logits = node("Identity", "", {logits}, Shape{N, V});
    if (d_.one_in(16)) node("Neg", "", {logits}, Shape{N, V});
    const std::string targets = d_.one_in(4) ? value(DataType::int64, {N}) : input({N}, DataType::int64, "t");
    const std::vector<Attribute> how = {text("reduction", d_.one_in(2) ? "mean" : "sum"),
                                        integer("ignore_index", kIgnored)};
    const char* loss = has_loss_ ? "l" : "loss";
    const Names losses = node("SoftmaxCrossEntropyLoss", "", {logits, targets},
                              {{loss, DataType::float32, {}}, {"p", DataType::float32, {N, V}}}, how);
    if (d_.one_in(8)) node("Neg", "", {losses[0]}, Shape{});
    const std::string dloss = d_.one_in(16) ? losses[0] : d_.one_in(8) ? floats({1}) : one();
    std::string d = node("SoftmaxCrossEntropyLossGrad", kMicrosoft, {dloss, losses[1], targets}, Shape{N, V}, how);
    if (d_.one_in(4)) d = node("Reshape", "", {d, constant({N, V})}, Shape{N, V});
    if (d_.one_in(16)) d = node("Reshape", "", {d, constant({V, N})}, Shape{V, N});
    for (size_t kind = 0; kind < 3; ++kind) {
      for (size_t times = d_.one_in(8) ? d_.below(3) : 1; times > 0; --times) gradient(kind, d, hidden, weight, V);
    }
    if (d_.one_in(8)) gradient(3, d, hidden, weight, V);
  }
  void gradient(size_t kind, const std::string& d, const Known& hidden, const std::string& weight, int64_t V) {
    const int64_t N = hidden.shape[0], H = hidden.shape[1];
    if (kind == 0) {
      Names inputs = {d, weight};
      if (d_.one_in(8)) inputs.push_back(floats({N, H}));
      node("Gemm", "", inputs, Shape{N, H});
    } else if (kind == 1) {
      Names inputs = {d, hidden.name};
      if (d_.one_in(8)) inputs.push_back(floats({V, H}));
      mark(node("Gemm", "", inputs, Shape{V, H}, {integer("transA", 1)}));
    } else if (kind == 2) {
      mark(node("ReduceSum", "", {d, constant({0})}, Shape{V}, {integer("keepdims", 0)}));
    } else {
      const std::string sums = node("ReduceSum", "", {d, constant({1})}, Shape{N}, {integer("keepdims", 0)});
      if (d_.one_in(2)) mark(sums);
    }
  }
  std::string one() {
    const float value = 1;
    return constant(DataType::float32, {}, &value);
  }

  void recurrent() {
    const bool lstm = d_.one_in(2);
    const int64_t T = 1 + static_cast<int64_t>(d_.below(3)), B = size(), E = size(), H = size(), gates = lstm ? 4 : 3;
    const Shape state = {1, B, H}, all = {T, 1, B, H}, of_gates = {T, 1, B, gates * H};
    Names inputs = {floats({T, B, E}),
                    floats({1, gates * H, E}),
                    floats({1, gates * H, H}),
                    d_.one_in(4) ? "" : floats({1, 2 * gates * H}),
                    "",
                    floats(state)};
    if (lstm) inputs.push_back(floats(state));
    std::vector<Attribute> attributes = {integer("hidden_size", H)};
    if (!lstm) attributes.push_back(integer("linear_before_reset", 1));
    std::vector<Known> outputs = {{"y", DataType::float32, all}, {"h", DataType::float32, state}};
    if (lstm) outputs.push_back({"c", DataType::float32, state});
    if (d_.one_in(4)) {
      node(lstm ? "LSTM" : "GRU", "", inputs, outputs, attributes);
      return;
    }
    if (lstm) outputs.push_back({"a", DataType::float32, all});
    outputs.push_back({"g", DataType::float32, of_gates});
    const Names made = node(lstm ? "LSTMTraining" : "GRUTraining", kMicrosoft, inputs, outputs, attributes);
    Names back = {inputs[0], inputs[1], inputs[2]};
    if (lstm) back.insert(back.end(), {"", inputs[5], inputs[6], made[0], made[3], made[4]});
    if (!lstm) back.insert(back.end(), {inputs[3], "", inputs[5], made[0], made[2]});
    back.push_back(floats(all));
    const Names gradients = node(lstm ? "LSTMGrad" : "GRUGrad", kMicrosoft, back,
                                 {{"dx", DataType::float32, {T, B, E}},
                                  {"dw", DataType::float32, {1, gates * H, E}},
                                  {"dr", DataType::float32, {1, gates * H, H}},
                                  {d_.one_in(2) ? "" : "db", DataType::float32, {1, 2 * gates * H}}},
                                 attributes);
    for (const std::string& gradient : gradients) {
      if (!gradient.empty() && !d_.one_in(4)) mark(gradient);
    }
  }

  void dropout() {
    const Known a = any(DataType::float32, 1 + d_.below(3));
    const float share = 0.25f;
    const char on = 1;
    const std::string ratio = constant(DataType::float32, {}, &share), training = constant(DataType::boolean, {}, &on);
    const Names made = node("Dropout", "", {a.name, ratio, training},
                            {{d_.one_in(8) ? "" : "v", DataType::float32, a.shape}, {"k", DataType::boolean, a.shape}});
    if (d_.one_in(2)) node("DropoutGrad", kMicrosoft, {floats(a.shape), made[1], ratio, training}, a.shape);
  }

  void integers() {
    const Known ids = any(DataType::int64, 1 + d_.below(2));
    const Names same = node("Equal", "", {ids.name, constant({1})}, {{"e", DataType::boolean, ids.shape}});
    const Names other = node("Not", "", same, {{"e", DataType::boolean, ids.shape}});
    node("Cast", "", {d_.one_in(2) ? other[0] : ids.name}, ids.shape, {integer("to", 1)});
  }

  Decisions& d_;
  onnx::Model model_;
  std::vector<Known> values_;
  size_t count_ = 0;
  bool marked_ = false, has_loss_ = false;
};

}  // namespace

onnx::Model random_graph(Decisions& decisions) {
  return Maker(decisions).make();
}

}  // namespace phonograd
