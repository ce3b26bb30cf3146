#include "kernels/gemm.h"

#include <algorithm>
#include <limits>

namespace phonograd {

namespace {

// First-level cache: a packed panel [depth, panel] of B, which all rows of a block are multiplied by. That is 16 KB on
// NEON and 21 KB on AVX2; AVX-512's 63 KB come from the second-level cache.
constexpr int64_t kDepth = 328;
// Second-level cache: the rows of C [rows_per_fetch_, columns] and of A, which each panel of the group reads again.
constexpr int64_t kColumns = 336;
constexpr int64_t kColumnsAbove = 32;  // narrow, so that threads have equal shares above a diagonal
constexpr int64_t kLine = 16;          // floats in a cache line
// Last-level cache, which the threads share: B packed whole, 4 MB.
constexpr int64_t kSharedFloats = 1 << 20;

// The depth in equal blocks, so that none is left nearly empty, of `floats` at most or of twice as many bf16.
int64_t block_depth(int64_t K, int64_t floats, const Bf16Kernels* bf16) {
  const int64_t at_most = bf16 == nullptr ? floats : 2 * floats;
  return K == 0 ? 1 : divided_up(K, divided_up(K, at_most));
}

int64_t whole_lines(int64_t floats) {
  return divided_up(floats, kLine) * kLine;
}

void copy_rows(int64_t rows, int64_t columns, const float* from, float* to, ptrdiff_t stride) {
  for (int64_t m = 0; m < rows; ++m) std::copy_n(from + m * stride, columns, to + m * stride);
}

}  // namespace

Products::Products(ThreadPool& pool, const KernelSet& kernels, const Bf16Kernels* bf16)
    : pool_(pool),
      kernels_(kernels),
      bf16_(bf16),
      rows_per_fetch_(bf16 == nullptr && kernels.reads_rows ? 24 : 32),
      of_thread_(static_cast<size_t>(pool.threads())) {
  const int64_t panel = whole_lines(kMostDepth * kernels.panel);
  const int64_t rows = kernels.reads_rows ? 0 : whole_lines(kMostRows * kDepth);
  const int64_t pairs = bf16 == nullptr ? 0 : whole_lines(kMostRows * bf16->pairs_of(2 * kDepth));
  const int64_t of_thread = panel + rows + pairs;
  memory_ = Memory(sizeof(float) * static_cast<size_t>(kSharedFloats + pool.threads() * of_thread));
  shared_ = reinterpret_cast<float*>(memory_.data());
  float* next = shared_ + kSharedFloats;
  for (OfThread& own : of_thread_) {
    own = {next, next + panel, reinterpret_cast<uint32_t*>(next + panel + rows)};
    next += of_thread;
  }
}

size_t Products::packed_size(int64_t K, int64_t N) const {
  // Pairs are as large as floats; of a depth of 1 there may be two.
  const int64_t elements = bf16_ == nullptr ? K : std::max(K, bf16_->pairs_of(K));
  return static_cast<size_t>(elements * divided_up(N, kernels_.panel) * kernels_.panel);
}

void Products::pack(int64_t K, int64_t N, Matrix B, float* packed) {
  const int64_t depth = block_depth(K, kDepth, bf16_), blocks = divided_up(K, depth);
  const int64_t panel = kernels_.panel, panels = divided_up(N, panel);
  pool_.for_each(blocks * panels, [&](int64_t item, int) {
    const int64_t k = item / panels * depth, n = item % panels * panel;
    const int64_t rows = std::min(depth, K - k), elements = bf16_ == nullptr ? rows : bf16_->pairs_of(rows);
    pack_block(rows, std::min(panel, N - n), {B.data + k * B.row + n * B.column, B.row, B.column},
               packed + k * panels * panel + n * elements);
  });
}

void Products::multiply_packed(int64_t M, int64_t N, int64_t K, Matrix A, float* packed, float* C, ptrdiff_t ldc,
                               float alpha, float beta, int thread) {
  const int64_t depth = block_depth(K, kDepth, bf16_), width = divided_up(N, kernels_.panel) * kernels_.panel;
  for (int64_t k = 0; k < K; k += depth) {
    const int64_t deep = std::min(depth, K - k);
    const Matrix block{A.data + k * A.column, A.row, A.column};
    const Operands ready = operands(M, deep, block, packed + k * width, thread);
    if (bf16_ == nullptr) {
      multiply_block(0, M, N, deep, ready, C, ldc, alpha, k == 0 ? beta : 1);
      continue;
    }
    // What this thread rounds next: deeper, or the rows after those that the others have meanwhile.
    const bool deeper = k + depth < K;
    const float* next = deeper ? block.data + depth * A.column : A.data + M * pool_.threads() * A.row;
    multiply_and_fetch(M, N, deep, ready, {next, A.row, A.column}, C, ldc, alpha, k == 0 ? beta : 1);
  }
}

// Rounding waits for memory, and does nothing else meanwhile: so the next operand [M, K] is fetched during the product,
// a few lines at a time.
void Products::multiply_and_fetch(int64_t M, int64_t N, int64_t K, const Operands& operands, Matrix next, float* C,
                                  ptrdiff_t ldc, float alpha, float beta) const {
  const int64_t panel = kernels_.panel, along = next.column == 1 ? K : M, across = next.column == 1 ? M : K;
  const ptrdiff_t stride = next.column == 1 ? next.row : next.column;
  const int64_t pieces = divided_up(N, panel) * divided_up(M, rows_per_fetch_), of_row = divided_up(along, kLine);
  const int64_t lines = divided_up(across * of_row, pieces);
  int64_t row = 0, line = 0;
  for (int64_t n = 0; n < N; n += panel) {
    const Operands of_panel{operands.a, operands.pairs, operands.by, operands.panel + n * bf16_->pairs_of(K)};
    for (int64_t m = 0; m < M; m += rows_per_fetch_) {
      for (int64_t i = 0; i < lines && row < across; ++i) {
        __builtin_prefetch(next.data + row * stride + line * kLine, 0, 2);
        if (++line == of_row) line = 0, ++row;
      }
      multiply_block(m, std::min(rows_per_fetch_, M - m), std::min(panel, N - n), K, of_panel, C + m * ldc + n, ldc,
                     alpha, beta);
    }
  }
}

void Products::gemm(int64_t M, int64_t N, int64_t K, Matrix A, Matrix B, float* C, ptrdiff_t ldc, float alpha,
                    float beta, bool above, const float* added) {
  if (added != nullptr) beta = 1;
  if (!above && packed_size(K, N) <= static_cast<size_t>(kSharedFloats) && M >= N / 4) {
    gemm_shared_b(M, N, K, A, B, C, ldc, alpha, beta, added);
  } else {
    gemm_by_columns(M, N, K, A, B, C, ldc, alpha, beta, above, added);
  }
}

void Products::gemm_shared_b(int64_t M, int64_t N, int64_t K, Matrix A, Matrix B, float* C, ptrdiff_t ldc, float alpha,
                             float beta, const float* added) {
  pack(K, N, B, shared_);
  const int64_t share = divided_up(divided_up(M, pool_.threads()), kernels_.rows) * kernels_.rows;
  const int64_t block = std::min(kRowBlock, share);
  pool_.for_each(divided_up(M, block), [&](int64_t item, int thread) {
    const int64_t m = item * block, rows = std::min(block, M - m);
    if (added != nullptr) copy_rows(rows, N, added + m * ldc, C + m * ldc, ldc);
    multiply_packed(rows, N, K, {A.data + m * A.row, A.row, A.column}, shared_, C + m * ldc, ldc, alpha, beta, thread);
  });
}

void Products::gemm_by_columns(int64_t M, int64_t N, int64_t K, Matrix A, Matrix B, float* C, ptrdiff_t ldc,
                               float alpha, float beta, bool above, const float* added) {
  // A number of groups of columns that divides evenly among the threads.
  const int64_t at_most = above ? kColumnsAbove : kColumns;
  const int64_t groups = divided_up(divided_up(N, at_most), pool_.threads()) * pool_.threads();
  const int64_t columns = divided_up(divided_up(N, groups), kernels_.panel) * kernels_.panel;
  const int64_t depth = block_depth(K, kMostDepth, bf16_);
  pool_.for_each(divided_up(N, columns), [&](int64_t item, int thread) {
    const int64_t n = item * columns, width = std::min(columns, N - n);
    if (added != nullptr) copy_rows(M, width, added + n, C + n, ldc);
    for (int64_t k = 0; k < K; k += depth) {
      const Factor block{width, {B.data + k * B.row + n * B.column, B.row, B.column}, C + n, ldc, above ? n : kNone};
      multiply_unpacked(M, std::min(depth, K - k), {A.data + k * A.column, A.row, A.column}, &block, 1, alpha,
                        k == 0 ? beta : 1, thread);
    }
  });
}

void Products::multiply_unpacked(int64_t M, int64_t K, Matrix A, const Factor* factors, size_t count, float alpha,
                                 float beta, int thread) {
  const int64_t at_most = most_rows(K);
  for (int64_t m = 0; m < M; m += at_most) {
    const int64_t rows = std::min(at_most, M - m);
    const Matrix block{A.data + m * A.row, A.row, A.column};
    float* panel = of_thread_[static_cast<size_t>(thread)].panel;
    const Operands ready = operands(rows, K, block, panel, thread);
    for (size_t i = 0; i < count; ++i) {
      Factor below = factors[i];
      below.C += m * below.ldc;
      below.diagonal -= m;
      multiply_panels(rows, K, ready, below, alpha, beta);
    }
  }
}

int64_t Products::most_rows(int64_t K) const {
  if (bf16_ == nullptr && kernels_.reads_rows) return std::numeric_limits<int64_t>::max();
  const int64_t elements = bf16_ != nullptr ? bf16_->pairs_of(K) : K;
  return kMostRows * (bf16_ != nullptr ? bf16_->pairs_of(2 * kDepth) : kDepth) / elements / kernels_.rows *
         kernels_.rows;
}

Products::Operands Products::operands(int64_t M, int64_t K, const Matrix& A, float* panel, int thread) {
  OfThread& own = of_thread_[static_cast<size_t>(thread)];
  const int rows = static_cast<int>(M), depth = static_cast<int>(K);
  if (bf16_ != nullptr) {
    const Strides by = bf16_->to_pairs(A.data, A.row, A.column, rows, depth, own.pairs);
    return {nullptr, own.pairs, by, panel};
  }
  if (kernels_.reads_rows) return {A.data, nullptr, {A.row, A.column}, panel};
  kernels_.pack_rows(A.data, A.row, A.column, rows, depth, own.rows);
  return {own.rows, nullptr, {depth, 0}, panel};
}

// Panel by panel of B: pack it, and multiply; meanwhile the next panel comes from memory, a few lines at a time.
void Products::multiply_panels(int64_t M, int64_t K, const Operands& operands, const Factor& factor, float alpha,
                               float beta) const {
  const int64_t panel = kernels_.panel, N = factor.N;
  const Matrix& B = factor.B;
  for (int64_t n = 0; n < N; n += panel) {
    const int64_t width = std::min(panel, N - n), rows = std::min(M, factor.diagonal + n + width);
    if (rows <= 0) continue;
    pack_block(K, width, {B.data + n * B.column, B.row, B.column}, operands.panel);
    const float* next = B.data + (n + panel) * B.column;
    const int64_t lines = divided_up(K * rows_per_fetch_, rows);
    for (int64_t m = 0, k = 0; m < rows; m += rows_per_fetch_) {
      for (const int64_t end = std::min(K, k + lines); k < end; ++k) {
        for (int64_t last = std::min(panel, kLine) - 1; last < panel; last += kLine) {
          __builtin_prefetch(next + k * B.row + last * B.column);
        }
      }
      multiply_block(m, std::min(rows_per_fetch_, rows - m), width, K, operands, factor.C + m * factor.ldc + n,
                     factor.ldc, alpha, beta);
    }
  }
}

void Products::pack_block(int64_t K, int64_t N, Matrix B, float* packed) const {
  const int depth = static_cast<int>(K), columns = static_cast<int>(N);
  if (bf16_ != nullptr) {
    bf16_->pack(B.data, B.row, B.column, depth, columns, reinterpret_cast<uint32_t*>(packed));
  } else {
    kernels_.pack(B.data, B.row, B.column, depth, columns, packed);
  }
}

// Rows [m, m + M) of the operands, and all the columns that are packed.
void Products::multiply_block(int64_t m, int64_t M, int64_t N, int64_t K, const Operands& operands, float* C,
                              ptrdiff_t ldc, float alpha, float beta) const {
  const int rows = static_cast<int>(M), columns = static_cast<int>(N);
  const Strides by = operands.by;
  if (operands.pairs == nullptr) {
    kernels_.multiply(rows, columns, static_cast<int>(K), operands.a + m * by.row, by.row, by.column, operands.panel, C,
                      ldc, alpha, beta);
    return;
  }
  bf16_->multiply(rows, columns, static_cast<int>(bf16_->pairs_of(K)), operands.pairs + m * by.row, by.row, by.column,
                  reinterpret_cast<const uint32_t*>(operands.panel), C, ldc, alpha, beta);
}

}  // namespace phonograd
