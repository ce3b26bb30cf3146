// Products of whole matrices on all threads.
//
// Every element is summed over the depth in the same order whatever the number of threads: the depth is cut into blocks
// by its length alone, and threads share rows or columns of the result.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/kernel_set.h"

namespace phonograd {

// A matrix where it lies: element (r, c) is data[r * row + c * column].
struct Matrix {
  const float* data;
  ptrdiff_t row, column;
};

inline Matrix row_major(const float* data, ptrdiff_t columns) {
  return {data, columns, 1};
}
inline Matrix transposed(Matrix m) {
  return {m.data, m.column, m.row};
}

// Threads, kernels and the memory that packing needs: what every operator computes with. Not thread-safe.
class Compute {
 public:
  Compute(int threads, bool pin, const KernelSet& kernels);

  ThreadPool pool;
  const KernelSet& kernels;

  // C[M, N] = alpha A[M, K] B[K, N] + beta C, C row-major with rows ldc apart; beta is 0 or 1. Above: only elements
  // with column >= row are sure to be computed (a symmetric result).
  void gemm(int64_t M, int64_t N, int64_t K, Matrix A, Matrix B, float* C, ptrdiff_t ldc, float alpha = 1,
            float beta = 0, bool above = false);

  // B [K, N] packed for `multiply_packed`: call with all threads idle. Floats needed: packed_size(K, N).
  size_t packed_size(int64_t K, int64_t N) const;
  void pack(int64_t K, int64_t N, Matrix B, float* packed);
  // Rows [m, m + M) of C += or = A B on the calling thread; A's row 0 is row m.
  void multiply_packed(int64_t M, int64_t N, int64_t K, Matrix A, const float* packed, float* C, ptrdiff_t ldc,
                       float alpha, float beta) const;
  // C += or = A B on the calling thread, for K of at most kMostDepth: B is packed panel by panel on the way. thread: its
  // number in the running task.
  void multiply_unpacked(int64_t M, int64_t N, int64_t K, Matrix A, Matrix B, float* C, ptrdiff_t ldc, float alpha,
                         float beta, bool above, int thread);

 private:
  void gemm_shared_b(int64_t M, int64_t N, int64_t K, Matrix A, Matrix B, float* C, ptrdiff_t ldc, float alpha,
                     float beta);
  void gemm_by_columns(int64_t M, int64_t N, int64_t K, Matrix A, Matrix B, float* C, ptrdiff_t ldc, float alpha,
                       float beta, bool above);

  std::vector<float> shared_;                  // B packed whole
  std::vector<std::vector<float>> of_thread_;  // a panel of B for each thread
};

// Rows of a result that one thread takes at a time.
constexpr int64_t kRowBlock = 96;
constexpr int64_t kMostDepth = 192;

}  // namespace phonograd
