// Products of whole matrices on all threads, in fp32 or with operands rounded to bf16.
//
// Every element is summed over the depth in the same order whatever the number of threads: the depth is cut into blocks
// by its length alone, and threads share rows or columns of the result.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/memory.h"
#include "base/thread_pool.h"
#include "kernels/bf16.h"
#include "kernels/kernel_set.h"

namespace phonograd {

inline int64_t divided_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// A matrix where it lies: element (r, c) is data[r * row + c * column].
struct Matrix {
  const float* data;
  ptrdiff_t row, column;
};

inline Matrix row_major(const float* data, ptrdiff_t columns) {
  return {data, columns, 1};
}
inline Matrix transpose(Matrix m) {
  return {m.data, m.column, m.row};
}

// Products on the threads of a pool, which must outlive this, and the memory that packing needs. Not thread-safe.
class Products {
 public:
  // bf16: nullptr for fp32. With it every product below has bf16 operands.
  Products(ThreadPool& pool, const KernelSet& kernels, const Bf16Kernels* bf16 = nullptr);

  int threads() const { return pool_.threads(); }
  const KernelSet& kernels() const { return kernels_; }
  const Bf16Kernels* bf16() const { return bf16_; }

  // C[M, N] = alpha A[M, K] B[K, N] + beta C, C row-major with rows ldc apart; beta is 0 or 1. Above: only elements
  // with column >= row are sure to be computed (a symmetric result). Added [M, N], laid out as C: what is added to the
  // product in place of C.
  void gemm(int64_t M, int64_t N, int64_t K, Matrix A, Matrix B, float* C, ptrdiff_t ldc, float alpha = 1,
            float beta = 0, bool above = false, const float* added = nullptr);

  // B [K, N] packed for `multiply_packed`: call with all threads idle. Floats needed: packed_size(K, N).
  size_t packed_size(int64_t K, int64_t N) const;
  void pack(int64_t K, int64_t N, Matrix B, float* packed);
  // C[M, N] += or = A B on the calling thread, `thread` of the running task; M is at most kMostRows.
  void multiply_packed(int64_t M, int64_t N, int64_t K, Matrix A, float* packed, float* C, ptrdiff_t ldc, float alpha,
                       float beta, int thread);
  // A factor B [K, N] of a product with A [M, K], and its result C [M, N]. diagonal: kNone, or the column that C's
  // first one is, counted from row 0: only elements on and above the diagonal are sure to be computed.
  static constexpr int64_t kNone = int64_t{1} << 40;  // right of all diagonals
  struct Factor {
    int64_t N;
    Matrix B;
    float* C;
    ptrdiff_t ldc;
    int64_t diagonal = kNone;
  };
  // Like multiply_packed, but packs the factors panel by panel on the way. K is at most kMostDepth. A is packed
  // or rounded once for all of them.
  void multiply_unpacked(int64_t M, int64_t K, Matrix A, const Factor* factors, size_t count, float alpha, float beta,
                         int thread);

 private:
  void gemm_shared_b(int64_t M, int64_t N, int64_t K, Matrix A, Matrix B, float* C, ptrdiff_t ldc, float alpha,
                     float beta, const float* added);
  void gemm_by_columns(int64_t M, int64_t N, int64_t K, Matrix A, Matrix B, float* C, ptrdiff_t ldc, float alpha,
                       float beta, bool above, const float* added);
  // Rows of A as the kernels take them, floats or pairs of bf16; and packed columns of B.
  struct Operands {
    const float* a;
    const uint32_t* pairs;  // nullptr: fp32
    Strides by;
    float* panel;
  };
  // So many rows of A have room to be packed at a time, to a depth of K.
  int64_t most_rows(int64_t K) const;
  Operands operands(int64_t M, int64_t K, const Matrix& A, float* panel, int thread);
  void multiply_panels(int64_t M, int64_t K, const Operands& operands, const Factor& factor, float alpha,
                       float beta) const;
  void multiply_and_fetch(int64_t M, int64_t N, int64_t K, const Operands& operands, Matrix next, float* C,
                          ptrdiff_t ldc, float alpha, float beta) const;
  void pack_block(int64_t K, int64_t N, Matrix B, float* packed) const;
  void multiply_block(int64_t m, int64_t M, int64_t N, int64_t K, const Operands& operands, float* C, ptrdiff_t ldc,
                      float alpha, float beta) const;

  struct OfThread {
    float* panel;     // of B
    float* rows;      // of A, packed, where the kernels want that
    uint32_t* pairs;  // of A in bf16
  };

  ThreadPool& pool_;
  const KernelSet& kernels_;
  const Bf16Kernels* bf16_;
  // Rows of a product between which the next panel is fetched ahead; whole tiles of every set that has tiles of rows.
  int64_t rows_per_fetch_;
  // Each part begins with a cache line: kernels read whole vectors and tiles of it.
  Memory memory_;
  float* shared_;  // B packed whole
  std::vector<OfThread> of_thread_;
};

// Second-level cache, each beside the panel of B in the first: rows of a result that one thread takes at a time, with
// 96 rows of A to a depth of 328 (126 KB); and at most so many rows or so deep, 252 KB or less where A is packed for
// it.
constexpr int64_t kRowBlock = 96;
constexpr int64_t kMostRows = 192, kMostDepth = 192;

}  // namespace phonograd
