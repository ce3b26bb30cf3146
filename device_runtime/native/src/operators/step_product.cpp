#include "operators/step_product.h"

namespace phonograd {

StepProduct::StepProduct(NodeBuilder& node, int64_t count, int64_t B, int64_t depth, int64_t columns)
    : kernels_(node.products().kernels()),
      bf16_(node.products().bf16()),
      B_(B),
      depth_(depth),
      columns_(columns),
      elements_(bf16_ == nullptr ? depth : bf16_->pairs_of(depth)),
      pairs_(bf16_ == nullptr ? 0 : divided_up(B, kernels_.rows) * kernels_.rows * elements_),
      packed_(node.scratch("packed R", count * panels() * elements_ * kernels_.panel)),
      rounded_(bf16_ == nullptr ? nullptr : node.scratch("a step in bf16", node.products().threads() * pairs_)) {}

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

StepProduct::Factor StepProduct::factor(Matrix A, int thread) const {
  if (bf16_ == nullptr) return {A.data, nullptr, {A.row, A.column}};
  uint32_t* pairs = static_cast<uint32_t*>(rounded_->data) + thread * pairs_;
  const int rows = static_cast<int>(B_), depth = static_cast<int>(depth_);
  return {nullptr, pairs, bf16_->to_pairs(A.data, A.row, A.column, rows, depth, pairs)};
}

void StepProduct::multiply(const Factor& A, int64_t index, int64_t panel, float* C, ptrdiff_t ldc) const {
  const int rows = static_cast<int>(B_), columns = static_cast<int>(width(panel));
  const float* matrix = packed(index, panel);
  if (bf16_ == nullptr) {
    kernels_.multiply(rows, columns, static_cast<int>(depth_), A.a, A.by.row, A.by.column, matrix, C, ldc, 1, 0);
  } else {
    bf16_->multiply(rows, columns, static_cast<int>(elements_), A.pairs, A.by.row, A.by.column,
                    reinterpret_cast<const uint32_t*>(matrix), C, ldc, 1, 0);
  }
}

}  // namespace phonograd
