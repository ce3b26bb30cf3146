// Operators that work element by element, with NumPy's broadcasting.
#include <algorithm>

#include "operators/operator.h"

namespace phonograd {

namespace {

constexpr int64_t kChunk = 16384;  // elements a thread takes at a time

// work(first, end) over chunks of [0, count).
template <typename Work>
void in_chunks(Run& run, int64_t count, Work work) {
  run.pool.for_each(divided_up(count, kChunk),
                    [&](int64_t chunk, int) { work(chunk * kChunk, std::min(count, (chunk + 1) * kChunk)); });
}

Shape broadcast(NodeChecker& node, const Shape& a, const Shape& b) {
  Shape shape(std::max(a.size(), b.size()));
  for (size_t i = 0; i < shape.size(); ++i) {
    const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1, y = i < b.size() ? b[b.size() - 1 - i] : 1;
    node.require(x == y || x == 1 || y == 1, "shapes " + to_text(a) + " and " + to_text(b) + " do not broadcast");
    shape[shape.size() - 1 - i] = std::max(x, y);
  }
  return shape;
}

// How an operand lies under the result: a stride for each dimension of the result, 0 where the operand is repeated.
std::vector<int64_t> strides_under(const Shape& operand, const Shape& result) {
  std::vector<int64_t> strides(result.size(), 0);
  int64_t stride = 1;
  for (size_t i = 0; i < operand.size(); ++i) {
    const int64_t size = operand[operand.size() - 1 - i];
    if (size != 1) strides[result.size() - 1 - i] = stride;
    stride *= size;
  }
  return strides;
}

struct Add {
  static constexpr const char* name = "add";
  static float of(float a, float b) { return a + b; }
};
struct Subtract {
  static constexpr const char* name = "subtract";
  static float of(float a, float b) { return a - b; }
};
struct Multiply {
  static constexpr const char* name = "multiply";
  static float of(float a, float b) { return a * b; }
};
struct Divide {
  static constexpr const char* name = "divide";
  static float of(float a, float b) { return a / b; }
};

template <typename Function>
class Binary : public Operator {
 public:
  Binary(Tensor* a, Tensor* b, Tensor* y)
      : a_(a),
        b_(b),
        y_(y),
        a_strides_(strides_under(a->shape, y->shape)),
        b_strides_(strides_under(b->shape, y->shape)) {}

  void run(Run& run) override {
    const int64_t width = y_->shape.empty() ? 1 : y_->shape.back();
    const int64_t rows = y_->elements() / width;
    const int64_t a_step = y_->shape.empty() ? 0 : a_strides_.back(),
                  b_step = y_->shape.empty() ? 0 : b_strides_.back();
    const int64_t rows_at_once = std::max<int64_t>(1, kChunk / width);
    run.pool.for_each(divided_up(rows, rows_at_once), [&](int64_t item, int) {
      const int64_t end = std::min(rows, (item + 1) * rows_at_once);
      for (int64_t row = item * rows_at_once; row < end; ++row) {
        const float* a = a_->floats() + offset(row, a_strides_);
        const float* b = b_->floats() + offset(row, b_strides_);
        float* y = y_->floats() + row * width;
        for (int64_t i = 0; i < width; ++i) y[i] = Function::of(a[i * a_step], b[i * b_step]);
      }
    });
  }
  std::string description() const override { return std::string(Function::name) + " " + to_text(y_->shape); }

 private:
  int64_t offset(int64_t row, const std::vector<int64_t>& strides) const {
    int64_t at = 0;
    for (size_t i = y_->shape.size(); i-- > 1;) {
      at += row % y_->shape[i - 1] * strides[i - 1];
      row /= y_->shape[i - 1];
    }
    return at;
  }

  Tensor *a_, *b_, *y_;
  std::vector<int64_t> a_strides_, b_strides_;
};

void check_binary(NodeChecker& node) {
  node.output(
      0, DataType::float32,
      broadcast(node, node.typed_input(0, DataType::float32).shape, node.typed_input(1, DataType::float32).shape));
}

template <typename Function>
std::unique_ptr<Operator> make_binary(NodeBuilder& node) {
  return std::make_unique<Binary<Function>>(node.input(0), node.input(1), node.output(0));
}

// y = sum of all inputs, of one shape.
class Sum : public Operator {
 public:
  explicit Sum(NodeBuilder& node) : y_(node.output(0)) {
    for (size_t i = 0; Tensor* x = node.input(i); ++i) inputs_.push_back(x);
  }
  void run(Run& run) override {
    in_chunks(run, y_->elements(), [&](int64_t first, int64_t end) {
      for (int64_t i = first; i < end; ++i) {
        float total = 0;
        for (const Tensor* x : inputs_) total += x->floats()[i];
        y_->floats()[i] = total;
      }
    });
  }
  std::string description() const override {
    return "sum of " + std::to_string(inputs_.size()) + " " + to_text(y_->shape);
  }

 private:
  std::vector<Tensor*> inputs_;
  Tensor* y_;
};

void check_sum(NodeChecker& node) {
  for (size_t i = 0; node.has_input(i); ++i) {
    node.typed_input(i, DataType::float32);
    node.require_shape(i, node.input(0).shape);
  }
  node.output(0, DataType::float32, node.input(0).shape);
}

struct Negate {
  static constexpr const char* name = "negate";
  static float of(float x) { return -x; }
};
struct Rectify {
  static constexpr const char* name = "rectify";
  static float of(float x) { return x > 0 ? x : x != x ? x : 0; }
};
struct Not {
  static constexpr const char* name = "not";
  static uint8_t of(uint8_t x) { return x == 0; }
};
template <typename From>
struct Cast {
  static constexpr const char* name = "cast";
  static float of(From x) { return static_cast<float>(x); }
};
struct CastBoolean {
  static constexpr const char* name = "cast";
  static float of(uint8_t x) { return x != 0 ? 1.0f : 0.0f; }
};

template <typename Function>
class Unary : public Operator {
 public:
  explicit Unary(NodeBuilder& node) : x_(node.input(0)), y_(node.output(0)) {}
  void run(Run& run) override { map(run, Function::of); }
  std::string description() const override { return std::string(Function::name) + " " + to_text(y_->shape); }

 private:
  template <typename From, typename To>
  void map(Run& run, To (*)(From)) {
    in_chunks(run, y_->elements(), [&](int64_t first, int64_t end) {
      const From* x = static_cast<const From*>(x_->data);
      To* y = static_cast<To*>(y_->data);
      for (int64_t i = first; i < end; ++i) y[i] = Function::of(x[i]);
    });
  }

  Tensor *x_, *y_;
};

template <DataType type>
void check_same_shape(NodeChecker& node) {
  node.output(0, type, node.typed_input(0, type).shape);
}

void check_cast(NodeChecker& node) {
  node.require(node.attribute("to", 0) == static_cast<int64_t>(DataType::float32), "only casts to float32 are known");
  node.require(node.input(0).type != DataType::undefined, "input '" + node.input(0).name + "' has no data");
  node.output(0, DataType::float32, node.input(0).shape);
}

std::unique_ptr<Operator> make_cast(NodeBuilder& node) {
  const DataType type = node.input(0)->type;
  if (type == DataType::boolean) return make_operator<Unary<CastBoolean>>(node);
  return type == DataType::int64 ? make_operator<Unary<Cast<int64_t>>>(node) : make_operator<Unary<Cast<float>>>(node);
}

// y = a == b for int64 a of any shape and a single b.
class EqualTo : public Operator {
 public:
  explicit EqualTo(NodeBuilder& node) : a_(node.input(0)), b_(node.input(1)), y_(node.output(0)) {}
  void run(Run& run) override {
    const int64_t wanted = b_->integers()[0];
    in_chunks(run, y_->elements(), [&](int64_t first, int64_t end) {
      for (int64_t i = first; i < end; ++i) y_->booleans()[i] = a_->integers()[i] == wanted;
    });
  }
  std::string description() const override { return "equal " + to_text(y_->shape); }

 private:
  Tensor *a_, *b_, *y_;
};

void check_equal(NodeChecker& node) {
  node.typed_input(0, DataType::int64);
  node.require(element_count(node.typed_input(1, DataType::int64).shape) == 1, "the second operand is not one number");
  node.output(0, DataType::boolean, node.input(0).shape);
}

// dx = dy where x > 0 (x may be Relu's input or its result).
class ReluGradient : public Operator {
 public:
  explicit ReluGradient(NodeBuilder& node) : dy_(node.input(0)), x_(node.input(1)), dx_(node.output(0)) {}
  void run(Run& run) override {
    in_chunks(run, dx_->elements(), [&](int64_t first, int64_t end) {
      for (int64_t i = first; i < end; ++i) dx_->floats()[i] = x_->floats()[i] > 0 ? dy_->floats()[i] : 0;
    });
  }
  std::string description() const override { return "gradient of rectify " + to_text(dx_->shape); }

 private:
  Tensor *dy_, *x_, *dx_;
};

void check_relu_gradient(NodeChecker& node) {
  node.typed_input(1, DataType::float32);
  node.require_shape(1, node.typed_input(0, DataType::float32).shape);
  node.output(0, DataType::float32, node.input(0).shape);
}

void check_expand(NodeChecker& node) {
  const Shape wanted = node.integers(1);
  node.require(wanted.size() <= 8, "more than 8 dimensions");
  int64_t elements = 1;
  for (int64_t size : wanted) {
    node.require(size > 0 && size <= (int64_t{1} << 31) / elements, "shape " + to_text(wanted) + " is out of range");
    elements *= size;
  }
  node.output(0, DataType::float32, broadcast(node, node.typed_input(0, DataType::float32).shape, wanted));
}

struct First {
  static constexpr const char* name = "expand";
  static float of(float a, float) { return a; }
};

std::unique_ptr<Operator> make_expand(NodeBuilder& node) {
  return std::make_unique<Binary<First>>(node.input(0), node.input(0), node.output(0));
}

}  // namespace

const OperatorTable& elementwise_operators() {
  static const OperatorTable table = {
      {"Add", "", 2, 2, 1, {}, check_binary, make_binary<Add>},
      {"Sub", "", 2, 2, 1, {}, check_binary, make_binary<Subtract>},
      {"Mul", "", 2, 2, 1, {}, check_binary, make_binary<Multiply>},
      {"Div", "", 2, 2, 1, {}, check_binary, make_binary<Divide>},
      {"Sum", "", 1, 16, 1, {}, check_sum, make_operator<Sum>},
      {"Neg", "", 1, 1, 1, {}, check_same_shape<DataType::float32>, make_operator<Unary<Negate>>},
      {"Not", "", 1, 1, 1, {}, check_same_shape<DataType::boolean>, make_operator<Unary<Not>>},
      {"Relu", "", 1, 1, 1, {}, check_same_shape<DataType::float32>, make_operator<Unary<Rectify>>},
      {"ReluGrad", "com.microsoft", 2, 2, 1, {}, check_relu_gradient, make_operator<ReluGradient>},
      {"Cast", "", 1, 1, 1, {"to"}, check_cast, make_cast},
      {"Equal", "", 2, 2, 1, {}, check_equal, make_operator<EqualTo>},
      {"Expand", "", 2, 2, 1, {}, check_expand, make_expand},
  };
  return table;
}

}  // namespace phonograd
