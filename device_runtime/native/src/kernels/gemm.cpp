#include "kernels/gemm.h"

#include <algorithm>

namespace phonograd {

namespace {

// A panel [depth, panel] of B stays in the first-level cache.
constexpr int64_t kDepth = 328;
constexpr int64_t kColumns = 336;
constexpr int64_t kColumnsAbove = 32;   // narrow, so that threads have equal shares above a diagonal
constexpr int64_t kRowsPerFetch = 24;   // rows of a product between which the next panel is fetched ahead
constexpr size_t kSharedFloats = 1u << 20;

int64_t divided_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// The depth in equal blocks, so that none is left nearly empty.
int64_t block_depth(int64_t K, int64_t at_most) {
  return K == 0 ? 1 : divided_up(K, divided_up(K, at_most));
}

}  // namespace

Compute::Compute(int threads, bool pin, const KernelSet& set)
    : pool(threads, pin), kernels(set), shared_(kSharedFloats), of_thread_(static_cast<size_t>(threads)) {
  for (auto& block : of_thread_) block.resize(static_cast<size_t>(kMostDepth * set.panel));
}

size_t Compute::packed_size(int64_t K, int64_t N) const {
  return static_cast<size_t>(K * divided_up(N, kernels.panel) * kernels.panel);
}

void Compute::pack(int64_t K, int64_t N, Matrix B, float* packed) {
  const int64_t depth = block_depth(K, kDepth), blocks = divided_up(K, depth);
  const int64_t panel = kernels.panel, panels = divided_up(N, panel);
  pool.for_each(blocks * panels, [&](int64_t item, int) {
    const int64_t k = item / panels * depth, n = item % panels * panel;
    const int64_t rows = std::min(depth, K - k);
    kernels.pack(B.data + k * B.row + n * B.column, B.row, B.column, static_cast<int>(rows),
                 static_cast<int>(std::min(panel, N - n)), packed + k * panels * panel + n * rows);
  });
}

void Compute::multiply_packed(int64_t M, int64_t N, int64_t K, Matrix A, const float* packed, float* C, ptrdiff_t ldc,
                              float alpha, float beta) const {
  const int64_t depth = block_depth(K, kDepth), width = divided_up(N, kernels.panel) * kernels.panel;
  for (int64_t k = 0; k < K; k += depth) {
    const int64_t rows = std::min(depth, K - k);
    kernels.multiply(static_cast<int>(M), static_cast<int>(N), static_cast<int>(rows), A.data + k * A.column, A.row,
                     A.column, packed + k * width, C, ldc, alpha, k == 0 ? beta : 1);
  }
}

void Compute::gemm(int64_t M, int64_t N, int64_t K, Matrix A, Matrix B, float* C, ptrdiff_t ldc, float alpha,
                   float beta, bool above) {
  if (!above && packed_size(K, N) <= shared_.size() && M >= N / 4) {
    gemm_shared_b(M, N, K, A, B, C, ldc, alpha, beta);
  } else {
    gemm_by_columns(M, N, K, A, B, C, ldc, alpha, beta, above);
  }
}

void Compute::gemm_shared_b(int64_t M, int64_t N, int64_t K, Matrix A, Matrix B, float* C, ptrdiff_t ldc, float alpha,
                            float beta) {
  pack(K, N, B, shared_.data());
  const int64_t share = divided_up(divided_up(M, pool.threads()), kernels.rows) * kernels.rows;
  const int64_t block = std::min(kRowBlock, share);
  pool.for_each(divided_up(M, block), [&](int64_t item, int) {
    const int64_t m = item * block;
    multiply_packed(std::min(block, M - m), N, K, {A.data + m * A.row, A.row, A.column}, shared_.data(), C + m * ldc,
                    ldc, alpha, beta);
  });
}

void Compute::gemm_by_columns(int64_t M, int64_t N, int64_t K, Matrix A, Matrix B, float* C, ptrdiff_t ldc, float alpha,
                              float beta, bool above) {
  // As many groups of columns as share evenly among the threads.
  const int64_t at_most = above ? kColumnsAbove : kColumns;
  const int64_t groups = divided_up(divided_up(N, at_most), pool.threads()) * pool.threads();
  const int64_t columns = divided_up(divided_up(N, groups), kernels.panel) * kernels.panel;
  const int64_t depth = block_depth(K, kMostDepth);
  pool.for_each(divided_up(N, columns), [&](int64_t item, int thread) {
    const int64_t n = item * columns, width = std::min(columns, N - n);
    const int64_t rows = above ? std::min(M, n + width) : M;
    for (int64_t k = 0; k < K; k += depth) {
      multiply_unpacked(rows, width, std::min(depth, K - k), {A.data + k * A.column, A.row, A.column},
                        {B.data + k * B.row + n * B.column, B.row, B.column}, C + n, ldc, alpha, k == 0 ? beta : 1,
                        false, thread);
    }
  });
}

void Compute::multiply_unpacked(int64_t M, int64_t N, int64_t K, Matrix A, Matrix B, float* C, ptrdiff_t ldc,
                                float alpha, float beta, bool above, int thread) {
  float* packed = of_thread_[static_cast<size_t>(thread)].data();
  const int64_t panel = kernels.panel;
  for (int64_t n = 0; n < N; n += panel) {
    const int64_t width = std::min(panel, N - n), rows = above ? std::min(M, n + width) : M;
    kernels.pack(B.data + n * B.column, B.row, B.column, static_cast<int>(K), static_cast<int>(width), packed);
    // The next panel comes from memory a few lines at a time, while this one is multiplied.
    const float* next = B.data + (n + 2 * panel - 1) * B.column;
    const int64_t lines = divided_up(K * kRowsPerFetch, rows);
    for (int64_t m = 0, k = 0; m < rows; m += kRowsPerFetch) {
      for (const int64_t end = std::min(K, k + lines); k < end; ++k) __builtin_prefetch(next + k * B.row);
      kernels.multiply(static_cast<int>(std::min(kRowsPerFetch, rows - m)), static_cast<int>(width),
                       static_cast<int>(K), A.data + m * A.row, A.row, A.column, packed, C + m * ldc + n, ldc, alpha,
                       beta);
    }
  }
}

}  // namespace phonograd
