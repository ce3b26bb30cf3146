#include "operators/update.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace phonograd {

namespace {

constexpr double kClipEpsilon = 1e-6;
constexpr int64_t kChunk = 1 << 16;  // elements of a dense gradient at a time; their sums are added in order

int64_t chunks(int64_t elements) {
  return divided_up(elements, kChunk);
}

int64_t parts(int64_t columns) {
  return (columns + 63) / 64;
}

}  // namespace

Update::Update(std::vector<ParameterGradient> gradients, Tensor* loss, float clip_norm, Tensor* scratch)
    : gradients_(std::move(gradients)),
      touched_(gradients_.size()),
      touched_count_(gradients_.size()),
      order_(gradients_.size()),
      loss_(loss),
      clip_norm_(clip_norm),
      scratch_(scratch) {
  for (size_t i = 0; i < gradients_.size(); ++i) {
    if (gradients_[i].rows == nullptr) continue;
    const size_t N = static_cast<size_t>(gradients_[i].ids->elements());
    touched_[i].resize(N);
    order_[i].resize(N);
  }
}

std::string Update::description() const {
  std::string text = "SGD";
  if (clip_norm_ > 0) text += ", norm clipped at " + std::to_string(clip_norm_);
  for (const ParameterGradient& gradient : gradients_) {
    text += "\n      " + gradient.parameter->name + " " + to_text(gradient.parameter->shape);
    if (gradient.has_factors()) text += " factored";
    if (gradient.rows != nullptr) text += " rows";
    if (gradient.dense != nullptr) text += gradient.has_factors() ? ", multiplied out" : " dense";
  }
  return text;
}

int64_t Update::scratch_floats(const std::vector<ParameterGradient>& gradients) {
  int64_t floats = 0;
  for (const ParameterGradient& gradient : gradients) {
    const int64_t N = gradient.factors.N;
    // Two Gram matrices; or the sums of chunks, in doubles.
    floats = std::max(floats, 2 * N * N + 2 * N);
    // Doubles of the touched rows, and their products with X.
    if (gradient.rows != nullptr) floats = std::max(floats, gradient.ids->elements() * (2 + N));
    if (gradient.dense != nullptr) floats = std::max(floats, 2 * chunks(gradient.dense->elements()));
  }
  return floats;
}

void Update::run(Run& run) {
  for (ParameterGradient& gradient : gradients_) {
    if (gradient.rows != nullptr) merge_rows(run, gradient);
  }
  if (loss_ != nullptr && !std::isfinite(*loss_->floats())) return;
  double scale = 1;
  if (clip_norm_ > 0) {
    gram_of_ = nullptr;
    double total = 0;
    for (const ParameterGradient& gradient : gradients_) total += squared_norm(run, gradient);
    // A sum of squares by its factors may come out a rounding error below zero.
    const double norm = std::sqrt(std::max(0.0, total));
    if (!std::isfinite(norm)) {
      throw Error(Status::training, "the gradient's norm is not finite; lower the learning rate (" +
                                        std::to_string(run.learning_rate) + ")");
    }
    scale = std::min(1.0, static_cast<double>(clip_norm_) / (norm + kClipEpsilon));
  }
  const float rate = static_cast<float>(scale * static_cast<double>(run.learning_rate));
  for (const ParameterGradient& gradient : gradients_) apply(run, gradient, rate);
}

// With factors DX and rows S, ||DX + S||^2 = ||DX||^2 + ||S||^2 + 2 <DX, S>.
double Update::squared_norm(Run& run, const ParameterGradient& gradient) {
  if (gradient.dense != nullptr) {
    if (gradient.has_factors()) add_terms(run, gradient, 1, 0, gradient.dense->floats());
    return dense_squared_norm(run, *gradient.dense);
  }
  double total = 0;
  if (gradient.has_factors()) total += factored_squared_norm(run, gradient.factors);
  if (gradient.rows != nullptr) total += squared_norm_of_rows(run, gradient);
  if (gradient.has_factors() && gradient.rows != nullptr) total += 2 * rows_times_factors(run, gradient);
  return total;
}

double Update::dense_squared_norm(Run& run, const Tensor& gradient) {
  const int64_t elements = gradient.elements();
  auto* sums = static_cast<double*>(scratch_->data);
  run.pool.for_each(chunks(elements), [&](int64_t chunk, int) {
    const int64_t first = chunk * kChunk, count = std::min(kChunk, elements - first);
    sums[chunk] = run.kernels.sum_of_squares(static_cast<size_t>(count), gradient.floats() + first);
  });
  gram_of_ = nullptr;
  double total = 0;
  for (int64_t chunk = 0; chunk < chunks(elements); ++chunk) total += sums[chunk];
  return total;
}

// ||D X||^2 = sum over i, j of (D^T D)_ij (X X^T)_ij, i and j tokens: N^2 (M + K) products in place of M N K, and no
// gradient in memory. In bf16 both have the operands that apply() rounds too: it is the norm of what will be
// subtracted.
double Update::factored_squared_norm(Run& run, const Factors& f) {
  float *of_d = scratch_->floats(), *of_x = of_d + f.N * f.N;  // [N, N]
  const Matrix D{f.d->floats(), f.d_row, f.d_column}, X = row_major(f.x->floats(), f.K);
  if (f.gram != nullptr) {
    of_d = f.gram->floats();
  } else if (gram_of_ != f.d) {
    run.products.gemm(f.N, f.N, f.M, transpose(D), D, of_d, f.N, 1, 0, true);
    gram_of_ = f.d;
  }
  run.products.gemm(f.N, f.N, f.K, X, transpose(X), of_x, f.N, 1, 0, true);
  auto* rows = static_cast<double*>(static_cast<void*>(of_x + f.N * f.N));
  run.pool.for_each(f.N, [&](int64_t i, int) {
    double off_diagonal = 0;
    for (int64_t j = i + 1; j < f.N; ++j) {
      off_diagonal += static_cast<double>(of_d[i * f.N + j]) * static_cast<double>(of_x[i * f.N + j]);
    }
    rows[i] = 2 * off_diagonal + static_cast<double>(of_d[i * f.N + i]) * static_cast<double>(of_x[i * f.N + i]);
  });
  double total = 0;
  for (int64_t i = 0; i < f.N; ++i) total += rows[i];
  return total;
}

double Update::squared_norm_of_rows(Run& run, const ParameterGradient& gradient) {
  const size_t i = place_of(gradient);
  const int64_t E = gradient.rows->elements() / gradient.ids->elements();
  double total = 0;
  for (size_t row = 0; row < touched_count_[i]; ++row) {
    total += run.kernels.sum_of_squares(static_cast<size_t>(E), gradient.rows->floats() + order_[i][row] * E);
  }
  return total;
}

// <DX, S> = sum over the touched rows v and the tokens n of D[v, n] (S X^T)[v, n]: R N K products, all in fp32.
double Update::rows_times_factors(Run& run, const ParameterGradient& gradient) {
  const Factors& f = gradient.factors;
  const size_t i = place_of(gradient);
  const auto touched = static_cast<int64_t>(touched_count_[i]);
  auto* sums = static_cast<double*>(scratch_->data);
  float* products = scratch_->floats() + 2 * touched;
  gram_of_ = nullptr;
  run.pool.for_each(touched, [&](int64_t row, int) {
    const auto at = static_cast<size_t>(row);
    const float* of_row = f.d->floats() + touched_[i][at] * f.d_row;
    float* product = products + row * f.N;
    run.kernels.multiply_rows(1, static_cast<int>(f.N), static_cast<int>(f.K),
                              gradient.rows->floats() + order_[i][at] * f.K, f.K, f.x->floats(), f.K, product, f.N, 0);
    double sum = 0;
    for (int64_t n = 0; n < f.N; ++n) {
      sum += static_cast<double>(of_row[n * f.d_column]) * static_cast<double>(product[n]);
    }
    sums[row] = sum;
  });
  double total = 0;
  for (int64_t row = 0; row < touched; ++row) total += sums[row];
  return total;
}

// Gradients of the same row are added into the first of them; touched_ and order_ list each row once, and where its
// gradient is.
void Update::merge_rows(Run& run, ParameterGradient& gradient) {
  const size_t i = place_of(gradient);
  const int64_t N = gradient.ids->elements(), E = gradient.rows->elements() / N;
  check_ids("token", *gradient.ids, gradient.parameter->shape[0]);
  const int64_t* ids = gradient.ids->integers();
  std::vector<int64_t>& order = order_[i];
  for (int64_t n = 0; n < N; ++n) order[static_cast<size_t>(n)] = n;
  std::sort(order.begin(), order.end(),
            [&](int64_t a, int64_t b) { return ids[a] != ids[b] ? ids[a] < ids[b] : a < b; });
  float* rows = gradient.rows->floats();
  run.pool.for_each(parts(E), [&](int64_t part, int) {
    const int64_t first = part * 64, width = std::min<int64_t>(64, E - first);
    int64_t into = order[0];
    for (size_t n = 1; n < order.size(); ++n) {
      if (ids[order[n]] != ids[into]) {
        into = order[n];
        continue;
      }
      for (int64_t e = first; e < first + width; ++e) rows[into * E + e] += rows[order[n] * E + e];
    }
  });
  size_t count = 0;
  for (size_t n = 0; n < order.size(); ++n) {
    if (n > 0 && ids[order[n]] == touched_[i][count - 1]) continue;
    touched_[i][count] = ids[order[n]];
    order[count++] = order[n];
  }
  touched_count_[i] = count;
}

void Update::add_terms(Run& run, const ParameterGradient& gradient, float factor, float beta, float* to) {
  const Factors& f = gradient.factors;
  if (gradient.has_factors()) {
    run.products.gemm(f.M, f.K, f.N, {f.d->floats(), f.d_row, f.d_column}, row_major(f.x->floats(), f.K), to, f.K,
                      factor, beta);
  }
  if (gradient.rows == nullptr) return;
  const size_t i = place_of(gradient);
  const int64_t E = gradient.rows->elements() / gradient.ids->elements();
  for (size_t row = 0; row < touched_count_[i]; ++row) {
    run.kernels.add_scaled(static_cast<size_t>(E), factor, gradient.rows->floats() + order_[i][row] * E,
                           to + touched_[i][row] * E);
  }
}

void Update::apply(Run& run, const ParameterGradient& gradient, float rate) {
  float* parameter = gradient.target != nullptr ? gradient.target : gradient.parameter->floats();
  if (gradient.dense == nullptr) return add_terms(run, gradient, -rate, 1, parameter);
  const int64_t elements = gradient.dense->elements();
  run.pool.for_each(chunks(elements), [&](int64_t chunk, int) {
    const int64_t first = chunk * kChunk, count = std::min(kChunk, elements - first);
    run.kernels.add_scaled(static_cast<size_t>(count), -rate, gradient.dense->floats() + first, parameter + first);
  });
}

}  // namespace phonograd
