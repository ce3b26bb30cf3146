#include "operators/output_layer.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace phonograd {

namespace {

constexpr int64_t kRowMultiple = 24;  // a whole number of tiles for every kernel set

}  // namespace

// Blocks of at most kMostDepth rows, as many in each part.
int64_t OutputLayerOperator::block_rows(int64_t V) {
  const int64_t blocks = kParts * divided_up(V, kParts * kMostDepth);
  return std::min(kMostDepth, divided_up(divided_up(V, blocks), kRowMultiple) * kRowMultiple);
}

int64_t OutputLayerOperator::sums_floats(int64_t V, int64_t N, int64_t sums) {
  return (divided_up(V, block_rows(V)) + 1) * sums * columns(N);
}

OutputLayerOperator::OutputLayerOperator(const OutputLayerTensors& tensors, LossSettings settings,
                                         const DistillationTensors* soft_targets)
    : t_(tensors),
      settings_(settings),
      N_(tensors.hidden->shape[0]),
      V_(tensors.weight->shape[0]),
      H_(tensors.weight->shape[1]),
      R_(tensors.low == nullptr ? 0 : tensors.low->shape[1]),
      columns_(columns(N_)),
      rows_(block_rows(V_)),
      blocks_(divided_up(V_, rows_)) {
  if (soft_targets != nullptr) distillation_.emplace(*soft_targets, rows_, columns_);
}

std::string OutputLayerOperator::description() const {
  return std::string("output layer, softmax") + (t_.targets == nullptr ? "" : ", cross-entropy") +
         (distillation_ ? ", distillation" : "") + " and gradients V=" + std::to_string(V_) +
         " H=" + std::to_string(H_) + " N=" + std::to_string(N_) +
         (R_ > 0 ? ", adapter R=" + std::to_string(R_) : std::string(", weight's gradient factored"));
}

Factors OutputLayerOperator::factors(size_t) const {
  return {t_.logits, columns_, 1, t_.hidden, V_, N_, H_, t_.gram};
}

void OutputLayerOperator::run(Run& run) {
  check_targets();
  exponentials(run);
  sums_and_loss(run.kernels);
  gradients(run);
  add_parts(run);
}

void OutputLayerOperator::check_targets() const {
  for (int64_t n = 0; n < N_; ++n) {
    if (counts(n) && (target(n) < 0 || target(n) >= V_)) {
      throw Error(Status::training, "target " + std::to_string(target(n)) + " at place " + std::to_string(n) +
                                        ": expected an id below " + std::to_string(V_) + ", or " +
                                        std::to_string(settings_.ignored) + " for none");
    }
  }
}

void OutputLayerOperator::exponentials(Run& run) {
  // The tokens of a padded column are those of no token; pack() fills them with zeros.
  run.products.pack(H_, N_, transpose(row_major(t_.hidden->floats(), H_)), t_.packed_hidden->floats());
  if (R_ > 0) {
    const Matrix low = row_major(t_.low->floats(), R_);
    run.products.pack(R_, N_, transpose(low), t_.packed_low->floats());
    run.products.pack(N_, R_, low, t_.packed_tokens->floats());
  }
  if (distillation_) distillation_->pack(run);
  run.pool.for_each(blocks_, [&](int64_t block, int thread) { exponentials_of_block(run, block, thread); });
}

void OutputLayerOperator::exponentials_of_block(Run& run, int64_t block, int thread) {
  const int64_t v = block * rows_, rows = std::min(rows_, V_ - v);
  float* logits = t_.logits->floats() + v * columns_;
  const float* bias = t_.bias == nullptr ? nullptr : t_.bias->floats() + v;
  if (N_ < columns_) {
    for (int64_t r = 0; r < rows; ++r) std::fill_n(logits + r * columns_ + N_, columns_ - N_, 0.0f);
  }
  run.products.multiply_packed(rows, N_, H_, row_major(t_.weight->floats() + v * H_, H_), t_.packed_hidden->floats(),
                               logits, columns_, 1, 0, thread);
  if (R_ > 0) {
    run.products.multiply_packed(rows, N_, R_, row_major(t_.adapter->floats() + v * R_, R_), t_.packed_low->floats(),
                                 logits, columns_, 1, 1, thread);
  }
  for (int64_t n = 0; n < N_; ++n) {
    const int64_t r = target(n) - v;
    if (r < 0 || r >= rows) continue;
    t_.per_token->floats()[n] = logits[r * columns_ + n] + (bias == nullptr ? 0.0f : bias[r]);
  }
  if (distillation_) distillation_->add_block(run, block, logits, bias, thread);
  float* highest = t_.sums->floats() + (block + 1) * 2 * columns_;
  run.kernels.column_exponentials(static_cast<int>(rows), static_cast<int>(columns_), bias, logits, columns_, highest,
                                  highest + columns_);
}

void OutputLayerOperator::sums_and_loss(const KernelSet& kernels) {
  float *highest = t_.sums->floats(), *sum = highest + columns_;
  std::fill_n(highest, columns_, std::numeric_limits<float>::lowest());
  std::fill_n(sum, columns_, 0.0f);
  for (int64_t block = 1; block <= blocks_; ++block) {
    const float* other = t_.sums->floats() + block * 2 * columns_;
    kernels.merge_log_sum(static_cast<int>(columns_), highest, sum, other, other + columns_);
  }
  const float* of_target = t_.per_token->floats();
  float *log_sum = t_.per_token->floats() + columns_, *scale = log_sum + columns_;
  double total = 0;
  int64_t counted = 0;
  for (int64_t n = 0; n < N_; ++n) {
    log_sum[n] = highest[n] + std::log(sum[n]);
    if (!counts(n)) continue;
    total += static_cast<double>(log_sum[n] - of_target[n]);
    ++counted;
  }
  const float of_all = settings_.mean ? 1.0f / static_cast<float>(counted) : 1.0f;
  for (int64_t n = 0; n < columns_; ++n) {
    scale[n] = n < N_ && counts(n) ? *t_.loss_gradient->floats() * of_all : 0;
    if (n >= N_) log_sum[n] = std::numeric_limits<float>::max();  // exp of the padding is zero
  }
  if (distillation_) distillation_->finish_sums(kernels, log_sum);
  if (t_.loss == nullptr) return;
  *t_.loss->floats() = static_cast<float>(settings_.mean ? total / static_cast<double>(counted) : total);
}

void OutputLayerOperator::gradients(Run& run) {
  const OutputParts parts(blocks_, H_, run.kernels.panel, run.pool.threads());
  const int64_t cut = parts.first_cut_block();
  if (cut < blocks_) {
    run.pool.for_each(blocks_ - cut, [&](int64_t block, int thread) { gradient_of_block(run, cut + block, thread); });
  }
  run.pool.for_each(parts.pieces(), [&](int64_t number, int thread) {
    const OutputParts::Piece piece = parts.piece(number);
    const int64_t first = parts.first_block(piece.part), end = parts.end_block(piece.part);
    for (int64_t block = first; block < end; ++block) {
      if (parts.is_whole(piece.part)) gradient_of_block(run, block, thread);
      add_block(run, block, piece, block == first, thread);
    }
  });
}

// D = dlogits [rows, N], in place, and what bias and adapter get of it.
void OutputLayerOperator::gradient_of_block(Run& run, int64_t block, int thread) {
  const int64_t v = block * rows_, rows = std::min(rows_, V_ - v);
  float* D = t_.logits->floats() + v * columns_;
  const float *log_sum = t_.per_token->floats() + columns_, *scale = log_sum + columns_;
  float* factor = t_.sums->floats() + (block + 1) * 2 * columns_;  // where the block's maxima were
  for (int64_t n = 0; n < columns_; ++n) factor[n] -= log_sum[n];
  run.kernels.exponential(factor, factor, static_cast<size_t>(columns_));
  for (int64_t n = 0; n < columns_; ++n) {
    factor[n] *= distillation_ && n < N_ ? scale[n] - distillation_->gradient(n) : scale[n];
  }
  float sums[kMostDepth];
  run.kernels.scale_columns(static_cast<int>(rows), static_cast<int>(columns_), D, columns_, factor, sums);
  for (int64_t n = 0; n < N_; ++n) {
    const int64_t r = target(n) - v;
    if (r < 0 || r >= rows) continue;
    D[r * columns_ + n] -= scale[n];
    sums[r] -= scale[n];
  }
  if (distillation_) distillation_->add_gradient(run, block, D, sums);
  if (t_.bias_gradient != nullptr) std::copy_n(sums, rows, t_.bias_gradient->floats() + v);
  if (t_.adapter_gradient == nullptr) return;
  run.products.multiply_packed(rows, R_, N_, row_major(D, columns_), t_.packed_tokens->floats(),
                               t_.adapter_gradient->floats() + v * R_, R_, 1, 0, thread);
}

// While the block of D is in the cache: dhidden [N, H] += D^T W, gram [N, N] += D^T D, dlow [N, R] += D^T B, in the
// sums of the part.
void OutputLayerOperator::add_block(Run& run, int64_t block, const OutputParts::Piece& piece, bool first, int thread) {
  const int64_t v = block * rows_, rows = std::min(rows_, V_ - v);
  const float* D = t_.logits->floats() + v * columns_;
  const int64_t hidden_row = columns(H_);
  float *dhidden = t_.parts->floats() + piece.part * part_floats(N_, H_, R_), *gram = dhidden + N_ * hidden_row;
  Products::Factor factors[3];
  size_t count = 0;
  if (t_.hidden_gradient != nullptr && piece.first < piece.end) {
    const Matrix weight = row_major(t_.weight->floats() + v * H_ + piece.first, H_);
    factors[count++] = {piece.end - piece.first, weight, dhidden + piece.first, hidden_row, Products::kNone};
  }
  if (t_.gram != nullptr && piece.gram) factors[count++] = {N_, row_major(D, columns_), gram, columns_, 0};
  if (t_.low_gradient != nullptr && piece.gram) {
    const Matrix adapter = row_major(t_.adapter->floats() + v * R_, R_);
    factors[count++] = {R_, adapter, gram + N_ * columns_, columns(R_), Products::kNone};
  }
  if (count == 0) return;
  run.products.multiply_unpacked(N_, rows, {D, 1, columns_}, factors, count, 1, first ? 0 : 1, thread);
}

void OutputLayerOperator::add_parts(Run& run) {
  run.pool.for_each(N_, [&](int64_t n, int) {
    const int64_t hidden_row = columns(H_);
    float* dhidden = t_.hidden_gradient == nullptr ? nullptr : t_.hidden_gradient->floats() + n * H_;
    float* gram = t_.gram == nullptr ? nullptr : t_.gram->floats() + n * N_;
    float* dlow = t_.low_gradient == nullptr ? nullptr : t_.low_gradient->floats() + n * R_;
    if (dhidden != nullptr) std::fill_n(dhidden, H_, 0.0f);
    if (dlow != nullptr) std::fill_n(dlow, R_, 0.0f);
    if (gram != nullptr) std::fill_n(gram + n, N_ - n, 0.0f);
    for (int64_t part = 0; part < kParts; ++part) {
      if (blocks_ * part / kParts == blocks_ * (part + 1) / kParts) continue;  // it has no block
      const float* of_part = t_.parts->floats() + part * part_floats(N_, H_, R_);
      const float* of_gram = of_part + N_ * hidden_row;
      if (dhidden != nullptr) run.kernels.add_scaled(static_cast<size_t>(H_), 1, of_part + n * hidden_row, dhidden);
      if (dlow != nullptr) {
        run.kernels.add_scaled(static_cast<size_t>(R_), 1, of_gram + N_ * columns_ + n * columns(R_), dlow);
      }
      if (gram != nullptr) run.kernels.add_scaled(static_cast<size_t>(N_ - n), 1, of_gram + n * columns_ + n, gram + n);
    }
  });
}

}  // namespace phonograd
