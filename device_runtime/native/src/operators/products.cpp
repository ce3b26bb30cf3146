// Gemm and Transpose of matrices, MatMul and FusedMatMul of rows and a matrix.
#include <algorithm>

#include "operators/operator.h"

namespace phonograd {

namespace {

// Y[M,N] = alpha op(A)[M,K] op(B)[K,N] + beta C, C broadcast to [M,N].
class Gemm : public Operator {
 public:
  struct Settings {
    bool a_transposed, b_transposed;
    float alpha, beta;
  };

  Gemm(Tensor* a, Tensor* b, Tensor* c, Tensor* y, Settings settings)
      : a_(a), b_(b), c_(c), y_(y), settings_(settings) {}

  void run(Run& run) override {
    const int64_t N = y_->shape.back(), M = y_->elements() / N, K = a_->elements() / M;  // Y [..., N] is M rows
    Matrix A = row_major(a_->floats(), settings_.a_transposed ? M : K);
    Matrix B = row_major(b_->floats(), settings_.b_transposed ? K : N);
    if (settings_.a_transposed) A = transpose(A);
    if (settings_.b_transposed) B = transpose(B);
    const bool whole = c_ != nullptr && c_->elements() == M * N && settings_.beta == 1;
    if (c_ != nullptr && !whole) fill(run, M, N);
    run.products.gemm(M, N, K, A, B, y_->floats(), N, settings_.alpha, c_ != nullptr ? 1.0f : 0.0f, false,
                      whole ? c_->floats() : nullptr);
  }
  const char* phase() const override { return "products"; }
  std::string description() const override {
    return "product " + to_text(a_->shape) + (settings_.a_transposed ? "ᵀ " : " ") + to_text(b_->shape) +
           (settings_.b_transposed ? "ᵀ" : "") + (c_ != nullptr ? " + " + to_text(c_->shape) : "");
  }

 private:
  void fill(Run& run, int64_t M, int64_t N) {
    const int64_t columns = c_->shape.empty() ? 1 : c_->shape.back(), rows = c_->elements() / columns;
    run.pool.for_each(M, [&](int64_t m, int) {
      const float* c = c_->floats() + (rows == 1 ? 0 : m * columns);
      float* y = y_->floats() + m * N;
      for (int64_t n = 0; n < N; ++n) y[n] = settings_.beta * c[columns == 1 ? 0 : n];
    });
  }

  Tensor *a_, *b_, *c_, *y_;
  Settings settings_;
};

void check_gemm(NodeChecker& node) {
  const Shape& a = node.float_input(0, 2).shape;
  const Shape& b = node.float_input(1, 2).shape;
  const bool a_transposed = node.attribute("transA", 0) != 0, b_transposed = node.attribute("transB", 0) != 0;
  const int64_t M = a[a_transposed], K = a[!a_transposed], N = b[!b_transposed];
  node.require(b[b_transposed] == K, "factors " + to_text(a) + " and " + to_text(b) + " do not fit");
  if (node.has_input(2)) {
    const Shape& c = node.typed_input(2, DataType::float32).shape;
    const bool fits =
        c.size() <= 2 && (c.empty() || c.back() == N || c.back() == 1) && (c.size() < 2 || c[0] == M || c[0] == 1);
    node.require(fits, "addend " + to_text(c) + " does not fit " + to_text({M, N}));
  }
  node.attribute_real("alpha", 1);
  node.attribute_real("beta", 1);
  node.output(0, DataType::float32, {M, N});
}

std::unique_ptr<Operator> make_gemm(NodeBuilder& node) {
  const onnx::Node& source = node.source();
  const float beta = source.real("beta", 1);
  const Gemm::Settings settings{source.integer("transA", 0) != 0, source.integer("transB", 0) != 0,
                                source.real("alpha", 1), beta};
  return std::make_unique<Gemm>(node.input(0), node.input(1), beta == 0 ? nullptr : node.input(2), node.output(0),
                                settings);
}

// A [..., K] is seen as rows of K; only FusedMatMul may have B transposed.
void check_matmul(NodeChecker& node) {
  Shape y = node.typed_input(0, DataType::float32).shape;
  const Shape& b = node.float_input(1, 2).shape;
  const bool b_transposed = node.attribute("transB", 0) != 0;
  for (const char* other : {"transA", "transBatchA", "transBatchB"}) {
    node.require(node.attribute(other, 0) == 0, std::string(other) + " is not known");
  }
  node.attribute_real("alpha", 1);
  node.require(y.size() >= 2 && y.back() == b[b_transposed],
               "factors " + to_text(y) + " and " + to_text(b) + " do not fit");
  y.back() = b[!b_transposed];
  node.output(0, DataType::float32, y);
}

std::unique_ptr<Operator> make_matmul(NodeBuilder& node) {
  const onnx::Node& source = node.source();
  const Gemm::Settings settings{false, source.integer("transB", 0) != 0, source.real("alpha", 1), 0};
  return std::make_unique<Gemm>(node.input(0), node.input(1), nullptr, node.output(0), settings);
}

class Transpose : public Operator {
 public:
  explicit Transpose(NodeBuilder& node) : x_(node.input(0)), y_(node.output(0)) {}

  void run(Run& run) override {
    const int64_t rows = x_->shape[0], columns = x_->shape[1];
    constexpr int64_t kTile = 32;
    run.pool.for_each(divided_up(rows, kTile), [&](int64_t item, int) {
      const int64_t end = std::min(rows, (item + 1) * kTile);
      for (int64_t c = 0; c < columns; ++c) {
        for (int64_t r = item * kTile; r < end; ++r) y_->floats()[c * rows + r] = x_->floats()[r * columns + c];
      }
    });
  }
  std::string description() const override { return "transpose " + to_text(x_->shape); }

 private:
  Tensor *x_, *y_;
};

void check_transpose(NodeChecker& node) {
  const Shape& x = node.float_input(0, 2).shape;
  node.require(node.attribute_integers("perm") == std::vector<int64_t>{1, 0}, "only perm [1, 0] is known");
  node.output(0, DataType::float32, {x[1], x[0]});
}

}  // namespace

const OperatorTable& product_operators() {
  static const OperatorTable table = {
      {"Gemm", "", 2, 3, 1, {"alpha", "beta", "transA", "transB"}, check_gemm, make_gemm},
      {"MatMul", "", 2, 2, 1, {}, check_matmul, make_matmul},
      {"FusedMatMul",
       "com.microsoft",
       2,
       2,
       1,
       {"alpha", "transA", "transB", "transBatchA", "transBatchB"},
       check_matmul,
       make_matmul},
      {"Transpose", "", 1, 1, 1, {"perm"}, check_transpose, make_operator<Transpose>},
  };
  return table;
}

}  // namespace phonograd
