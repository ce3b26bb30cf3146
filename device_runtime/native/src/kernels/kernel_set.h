// The vector kernels of one instruction set: a table of functions, chosen once at start. All run on one thread,
// allocate nothing, and are pure functions of their arguments, so they are safe to call from any thread.
//
// Results differ between sets by rounding only; within a set they depend on no thread count, because callers split the
// work over outputs and never over a sum.
#pragma once

#include <cstddef>
#include <cstdint>

namespace phonograd {

// Where an operand's elements lie: (m, k) at m * row + k * column.
struct Strides {
  ptrdiff_t row, column;
};

// Norms of an update's deltas.
struct DeltaNorms {
  double largest = 0, sum = 0, squares = 0;  // of the sizes |delta|, their sum, and that of their squares
};

// How deltas become integers: delta * factor, to the nearest (ties to even) or towards zero, times `weight`.
struct DeltaSteps {
  double factor;
  bool towards_zero;
  int64_t weight;
};

// The largest factor of an int8 product: both its bytes are signed.
constexpr int16_t kMostOfInt8 = 127 * 256 + 127;

struct KernelSet {
  const char* name;
  int lanes;        // floats in a vector
  int panel;        // columns of a packed panel of B: a whole number of vectors
  int rows;         // rows of a micro-kernel's tile
  bool reads_rows;  // multiply() takes an A with contiguous rows as it lies

  // B [depth, columns], row stride ldb (ldb 1 and column stride ldc for a transposed B), as panels
  // [ceil(columns / panel)][depth][panel], zero beyond `columns`. packed: ceil(columns / panel) * panel * depth floats.
  void (*pack)(const float* B, ptrdiff_t row_stride, ptrdiff_t column_stride, int depth, int columns, float* packed);

  // A [rows, depth], one of its strides 1, as tiles [ceil(rows / this->rows)][depth][this->rows]; rows that the last
  // tile lacks are left as they are. packed: ceil(rows / this->rows) * this->rows * depth floats.
  void (*pack_rows)(const float* A, ptrdiff_t a_row, ptrdiff_t a_column, int rows, int depth, float* packed);

  // C[m, n] = alpha * sum_k A[m, k] B[k, n] + beta * C[m, n], m < M, n < N, k < depth. A's element (m, k) is
  // A[m * a_row + k * a_column], and a_row is 1, or, with reads_rows, a_column. Or A is what pack_rows() made of it:
  // a_column 0, a_row the depth, and A may begin at any tile. packed as pack() leaves it (N <= its columns); C's rows
  // are ldc apart. beta is 0 or 1, and with 0 C is not read.
  void (*multiply)(int M, int N, int depth, const float* A, ptrdiff_t a_row, ptrdiff_t a_column, const float* packed,
                   float* C, ptrdiff_t ldc, float alpha, float beta);

  // C[m, n] = beta * C[m, n] + sum_k A[m, k] X[n, k], both rows contiguous in k (rows a_row and x_row apart); for few
  // columns N, as in one time step of B tokens, where packing X would cost as much as the product.
  void (*multiply_rows)(int M, int N, int depth, const float* A, ptrdiff_t a_row, const float* X, ptrdiff_t x_row,
                        float* C, ptrdiff_t ldc, float beta);

  // sums[m] = sum_k A[m, k] x[k], exactly: |sum_k 128 x[k]| must fit int32, and no |x[k]| is above kMostOfInt8. Rows of
  // A are a_row apart, contiguous in k.
  void (*multiply_int8)(int M, int depth, const int8_t* A, ptrdiff_t a_row, const int16_t* x, int32_t* sums);

  // Elementwise, in place allowed. Largest error over all floats, in units in the last place of the exact result, held
  // by tests/native: exp 1.2, sigmoid 2.4, tanh 1.7 (exp and sigmoid: 0 below -87.3; exp: infinity above 88.7; NaN
  // stays NaN).
  void (*exponential)(const float* x, float* y, size_t n);
  void (*sigmoid)(const float* x, float* y, size_t n);
  void (*hyperbolic_tangent)(const float* x, float* y, size_t n);

  // One time step of an LSTM for one token and `units` hidden units. gates: i, o, f, c, each [units], gate_row apart;
  // before the activation on entry, after it on return. c_before, c, h: [units].
  void (*lstm_cell)(int units, float* gates, ptrdiff_t gate_row, const float* c_before, float* c, float* h);
  // Gradient of lstm_cell. gates hold the activations on entry and the gradients of their inputs on return; dh: [units]
  // of h; dc: [units] of c on entry, of c_before on return.
  void (*lstm_cell_gradient)(int units, float* gates, ptrdiff_t gate_row, const float* c_before, const float* c,
                             const float* dh, float* dc);
  // The same with coupled gates i, o, c: the forget gate is 1 - i.
  void (*coupled_cell)(int units, float* gates, ptrdiff_t gate_row, const float* c_before, float* c, float* h);
  void (*coupled_cell_gradient)(int units, float* gates, ptrdiff_t gate_row, const float* c_before, const float* c,
                                const float* dh, float* dc);

  // Softmax by column over blocks of rows; `columns` is a whole number of vectors. For one block X [rows, columns]:
  // X[r, n] = exp(X[r, n] + bias[r] - highest[n]) in place, where highest[n] is the column's maximum and sum[n] the sum
  // of the result. bias: nullptr for none.
  void (*column_exponentials)(int rows, int columns, const float* bias, float* X, ptrdiff_t ldx, float* highest,
                              float* sum);
  // Maxima and sums of two groups of rows, joined into the first; of no rows: the lowest float and 0.
  void (*merge_log_sum)(int columns, float* highest, float* sum, const float* other_highest, const float* other_sum);
  // dots[n] = the sum over r of (X[r, n] + bias[r]) * Y[r, n]. bias: nullptr for none.
  void (*column_dots)(int rows, int columns, const float* bias, const float* X, ptrdiff_t ldx, const float* Y,
                      ptrdiff_t ldy, float* dots);
  // X[r, n] *= scale[n]; row_sum[r] = the sum over n of the result.
  void (*scale_columns)(int rows, int columns, float* X, ptrdiff_t ldx, const float* scale, float* row_sum);
  // The sum of exp(x[i] - highest), of differences in float, within 1e-6 of it; highest: the largest of x [n], n > 0.
  // NaN if one is NaN or infinity; -infinity adds nothing.
  double (*sum_of_exponentials)(size_t n, const float* x, float* highest);

  // y[i] = exp(x[i] - the largest of x [n]), n > 0, and their sum: not finite if an x is not, but for -infinity. In
  // place allowed. All sets give the same bits.
  double (*exponentials)(size_t n, const float* x, float* y);

  // y += alpha * x
  void (*add_scaled)(size_t n, float alpha, const float* x, float* y);
  // Sum of squares, in double, in an order that depends on n only.
  double (*sum_of_squares)(size_t n, const float* x);

  // x = H x, with Sylvester's Hadamard matrix of +-1: butterflies of stride 64, 128, ... size / 2, then 1, 2, ... 32.
  // size: a power of two, at least 64. All sets give the same bits.
  void (*hadamard)(size_t size, float* x);
  // x[i] = -x[i] where bit i mod 64 of words[i / 64] is set; size: a multiple of 64.
  void (*change_signs)(size_t size, const uint64_t* words, float* x);

  // deltas[i] = trained[i] - base[i], in double; n: a multiple of 8. Sums are of eight parts, element i in part i
  // mod 8. `sum` is finite if all deltas are. All sets give the same bits.
  DeltaNorms (*measure_deltas)(size_t n, const float* trained, const float* base, double* deltas);
  // sums[i] += deltas[i] as an integer, modulo 2^64. small: what is added is below 2^50; else below 2^63 before its
  // weight. All sets give the same.
  void (*add_deltas)(size_t n, const double* deltas, const DeltaSteps& steps, bool small, int64_t* sums);

  // sums[i] += word i of ChaCha20's keystream (RFC 8439) from block `counter` on, modulo 2^32, or -= it; i < n. Words
  // of 16 bits (32 a block) or 32 (16 a block), little-endian. key: 32 bytes. nonce: its first word; the others are 0.
  // The last block's number is below 2^32. All sets give the same. What is left of the stream in memory is wiped.
  void (*add_keystream)(const uint8_t* key, uint32_t nonce, uint32_t counter, size_t n, int bits, bool subtract,
                        uint32_t* sums);
};

// Sets that this CPU can run, best first; at least one. Names: "avx512", "avx2", "sme", "neon", "portable".
const KernelSet* const* kernel_sets(size_t* count);
// The best one, or the one of that name. Throws Error(unsupported) naming those there are.
const KernelSet& kernel_set(const char* name = nullptr);

}  // namespace phonograd
