#include "operators/step_product.h"

namespace phonograd {

StepProduct::StepProduct(NodeBuilder& node, int64_t count, int64_t B, int64_t depth, int64_t columns)
    : kernels_(node.products().kernels()),
      bf16_(node.products().bf16()),
      B_(B),
      depth_(depth),
      columns_(columns),
      elements_(bf16_ == nullptr ? depth : bf16_->pairs_of(depth)),
      factor_(bf16_ == nullptr && kernels_.reads_rows ? 0 : divided_up(B, kernels_.rows) * kernels_.rows * elements_),
      packed_(node.scratch("packed R", count * panels() * elements_ * kernels_.panel)),
      factors_(factor_ == 0 ? nullptr : node.scratch("a step's factor", node.products().threads() * factor_)) {}

float* StepProduct::packed(int64_t index, int64_t panel) const {
  return packed_->floats() + (index * panels() + panel) * elements_ * kernels_.panel;
}

void StepProduct::pack(Run& run, int64_t index, Matrix matrix) const {
  run.pool.for_each(panels(), [&](int64_t panel, int) {
    const float* data = matrix.data + first_column(panel) * matrix.column;
    const int depth = static_cast<int>(depth_), columns = static_cast<int>(width(panel));
    float* to = packed(index, panel);
    if (bf16_ == nullptr) {
      kernels_.pack(data, matrix.row, matrix.column, depth, columns, to);
    } else {
      bf16_->pack(data, matrix.row, matrix.column, depth, columns, reinterpret_cast<uint32_t*>(to));
    }
  });
}

StepProduct::Factor StepProduct::factor(const float* A, int thread) const {
  if (factors_ == nullptr) return {A, nullptr, {depth_, 1}};
  const int rows = static_cast<int>(B_), depth = static_cast<int>(depth_);
  float* own = factors_->floats() + thread * factor_;
  if (bf16_ == nullptr) {
    kernels_.pack_rows(A, depth_, 1, rows, depth, own);
    return {own, nullptr, {depth_, 0}};
  }
  auto* pairs = reinterpret_cast<uint32_t*>(own);
  return {nullptr, pairs, bf16_->to_pairs(A, depth_, 1, rows, depth, pairs)};
}

void StepProduct::multiply(const Factor& A, int64_t index, int64_t panel, float* C, ptrdiff_t ldc, float beta) const {
  const int rows = static_cast<int>(B_), columns = static_cast<int>(width(panel));
  const float* matrix = packed(index, panel);
  if (bf16_ == nullptr) {
    kernels_.multiply(rows, columns, static_cast<int>(depth_), A.a, A.by.row, A.by.column, matrix, C, ldc, 1, beta);
  } else {
    bf16_->multiply(rows, columns, static_cast<int>(elements_), A.pairs, A.by.row, A.by.column,
                    reinterpret_cast<const uint32_t*>(matrix), C, ldc, 1, beta);
  }
}

}  // namespace phonograd
