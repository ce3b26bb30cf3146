// The gradient of an adapter's B, dB = D^T (X A^T), from the factors of the whole matrix's gradient D^T X.
#pragma once

#include "operators/operator.h"

namespace phonograd {

class AdapterGradientOperator : public Operator {
 public:
  // A [R, K], low [N, R]: scratch memory, b_gradient [M, R].
  AdapterGradientOperator(const Factors& factors, Tensor* a, Tensor* low, Tensor* b_gradient)
      : f_(factors), a_(a), low_(low), b_gradient_(b_gradient) {}

  void run(Run& run) override {
    const int64_t R = a_->shape[0];
    const Matrix D{f_.d->floats(), f_.d_row, f_.d_column};
    run.products.gemm(f_.N, R, f_.K, row_major(f_.x->floats(), f_.K), transpose(row_major(a_->floats(), f_.K)),
                      low_->floats(), R);
    run.products.gemm(f_.M, R, f_.N, D, row_major(low_->floats(), R), b_gradient_->floats(), R);
  }
  const char* phase() const override { return "adapters"; }
  std::string description() const override {
    return "gradient of an adapter " + to_text(b_gradient_->shape) + ", its matrix's factored";
  }

 private:
  Factors f_;
  Tensor *a_, *low_, *b_gradient_;
};

}  // namespace phonograd
