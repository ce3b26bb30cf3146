// Measures the kernels of one set against double: `functions SET [PLANTED]`, `gemm SET THREADS
// fp32|bf16|bf16-emulated|amx-model`, `rounding SET bf16|bf16-emulated|amx-model` (which no set has: amx_model.cpp),
// `integers SET`, `exponentials SET`, `rotation SET`, `deltas SET`, and `za sme`. One JSON object on stdout. PLANTED:
// units in the last place by which each function's result at 1 is made wrong. `bits SET` prints a hash of the results
// of the functions that a prediction takes, to compare CPUs by.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/gemm.h"
#include "kernels/kernel_set.h"

namespace phonograd::amx_model {
extern const Bf16Kernels kernels;  // amx_model.cpp
}

using namespace phonograd;

namespace {

using Function = void (*)(const float*, float*, size_t);

float of_bits(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

// Floats of all sizes and both signs, subnormals, infinities and NaN among them; and all floats around the places where
// a function changes its method.
std::vector<float> sample() {
  std::vector<float> xs;
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 1021) xs.push_back(of_bits(static_cast<uint32_t>(bits)));
  for (float around :
       {0.0f, 1e-38f, 1e-40f, 0.3465736f, 0.625f, 1.0f, 9.0f, 43.67f, 44.36f, 87.33654f, 88.72283f, 103.97f}) {
    uint32_t bits;
    std::memcpy(&bits, &around, sizeof bits);
    const uint32_t first = bits < 4000 ? 0 : bits - 4000;
    for (uint32_t near = first; near < bits + 4000; ++near) {
      xs.push_back(of_bits(near));
      xs.push_back(-of_bits(near));
    }
  }
  const float infinity = std::numeric_limits<float>::infinity();
  for (float x : {infinity, -infinity, std::nanf(""), -std::nanf("")}) xs.push_back(x);
  for (int i = -880000; i <= 890000; ++i) xs.push_back(static_cast<float>(i) * 1e-4f);
  return xs;
}

// One unit in the last place of the exact result, as a float has it.
double unit_of(double exact) {
  int exponent;
  std::frexp(exact, &exponent);
  return std::ldexp(1.0, std::max(exponent - 24, -149));
}

// Of the finite arguments within [lowest, highest] the largest error; of the others how many come out wrong: below
// `lowest` something else than 0, above `highest` than infinity, for NaN than NaN.
void measure(const char* name, Function function, double (*exact)(double), float lowest, float highest, double planted,
             bool last) {
  const std::vector<float> xs = sample();
  std::vector<float> ys(xs.size());
  function(xs.data(), ys.data(), xs.size());
  double worst = 0;
  float at = 0;
  long wrong = 0, measured = 0, beyond = 0;
  for (size_t i = 0; i < xs.size(); ++i) {
    const float x = xs[i], y = ys[i];
    if (x != x) {
      wrong += !(y != y);
    } else if (x < lowest) {
      wrong += y != 0;
      ++beyond;
    } else if (x > highest) {
      wrong += y != std::numeric_limits<float>::infinity();
      ++beyond;
    } else {
      const double right = exact(static_cast<double>(x));
      const double found = x == 1 && planted != 0 ? right + planted * unit_of(right) : static_cast<double>(y);
      const double error = std::abs(static_cast<double>(static_cast<float>(found)) - right) / unit_of(right);
      ++measured;
      if (!(error <= worst)) worst = error == error ? error : 1e9, at = x;
    }
    // A vector's other lanes, and where in the array it stands, change nothing.
    float alone;
    if (i % 97 == 0) {
      function(&x, &alone, 1);
      wrong += std::memcmp(&alone, &y, sizeof y) != 0;
    }
  }
  std::printf("\"%s\": {\"ulp\": %.4f, \"at\": \"%a\", \"wrong\": %ld, \"measured\": %ld, \"beyond\": %ld}%s", name,
              worst, static_cast<double>(at), wrong, measured, beyond, last ? "}\n" : ", ");
}

double exact_exp(double x) {
  return std::exp(x);
}
double exact_sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}
double exact_tanh(double x) {
  return std::tanh(x);
}

void functions(const KernelSet& set, double planted) {
  const float infinity = std::numeric_limits<float>::infinity();
  std::printf("{");
  measure("exp", set.exponential, exact_exp, -87.33654f, 88.72283f, planted, false);
  measure("sigmoid", set.sigmoid, exact_sigmoid, -87.33654f, infinity, planted, false);
  measure("tanh", set.hyperbolic_tangent, exact_tanh, -infinity, infinity, planted, true);
}

// To the nearest bf16, which has 8 significant bits; ties to even.
float rounded_to_bf16(float x) {
  int exponent;
  const float fraction = std::frexp(x, &exponent);
  return std::ldexp(std::nearbyint(fraction * 256), exponent - 8);
}

// The bits of the nearest bf16, ties to even; of NaN a quiet one with the upper part of its payload; of a subnormal
// number a zero unless they are kept.
uint16_t bits_in_bf16(float x, bool subnormals) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  const uint32_t upper = bits >> 16, rest = bits & 0xffff;
  if (x != x) return static_cast<uint16_t>(upper | 0x40);
  if (!subnormals && (bits & 0x7f800000) == 0) return static_cast<uint16_t>(upper & 0x8000);
  const bool up = rest > 0x8000 || (rest == 0x8000 && upper % 2 == 1);
  return static_cast<uint16_t>(upper + up);
}

// Packs floats of all kinds as one row of B, so that each is the first number of its element, and compares.
void rounding(const Bf16Kernels& kernels) {
  std::vector<float> xs = sample();
  for (uint32_t bits = 0; bits < 0xffff0000u; bits += 0x8000) {  // ties, and what is next to them
    for (uint32_t near : {bits - 1, bits, bits + 1}) xs.push_back(of_bits(near));
  }
  const size_t panel = static_cast<size_t>(kernels.panel), words = static_cast<size_t>(kernels.depth / 2);
  xs.resize(xs.size() / panel * panel);
  const size_t of_column = static_cast<size_t>(kernels.pairs_of(1));
  std::vector<uint32_t> packed(xs.size() * of_column, ~0u);
  const ptrdiff_t columns = static_cast<ptrdiff_t>(xs.size());
  kernels.pack(xs.data(), columns, 1, 1, static_cast<int>(columns), packed.data());
  long wrong = 0;
  for (size_t n = 0; n < xs.size(); ++n) {
    bool filled = true;  // with zeros
    const size_t at = n / panel * panel * of_column + n % panel * words, next = words == 1 ? panel : 1;
    for (size_t w = 1; w < of_column; ++w) filled = filled && packed[at + w * next] == 0;
    wrong += !filled || packed[at] != bits_in_bf16(xs[n], kernels.subnormals);
  }
  std::printf("{\"rounded\": %zu, \"wrong\": %ld}\n", xs.size(), wrong);
}

// How many elements of one product are outside the rounding error that K sums and products in float can have.
struct Product {
  int64_t M, N, K;
  bool a_transposed, b_transposed, above;
  float alpha, beta;

  long wrong(Products& products, bool in_bf16, std::mt19937& random) const {
    std::normal_distribution<float> normal;
    std::vector<float> a(static_cast<size_t>(M * K)), b(static_cast<size_t>(K * N));
    for (float& x : a) x = normal(random);
    for (float& x : b) x = normal(random);
    const int64_t ldc = N + 3;
    constexpr float kMark = 12345;
    // Past the columns is a mark that must stay; with beta 0 what C holds must not be read.
    std::vector<float> c(static_cast<size_t>(M * ldc), kMark);
    for (int64_t m = 0; m < M; ++m) {
      for (int64_t n = 0; n < N; ++n) c[static_cast<size_t>(m * ldc + n)] = beta == 0 ? std::nanf("") : 0.5f;
    }
    Matrix A = row_major(a.data(), a_transposed ? M : K), B = row_major(b.data(), b_transposed ? K : N);
    if (a_transposed) A = transpose(A);
    if (b_transposed) B = transpose(B);
    products.gemm(M, N, K, A, B, c.data(), ldc, alpha, beta, above);
    if (in_bf16) {
      for (float& x : a) x = rounded_to_bf16(x);
      for (float& x : b) x = rounded_to_bf16(x);
    }
    long count = 0;
    for (int64_t m = 0; m < M; ++m) {
      for (int64_t n = 0; n < ldc; ++n) {
        const double found = static_cast<double>(c[static_cast<size_t>(m * ldc + n)]);
        if (n >= N) {
          count += found != static_cast<double>(kMark);
          continue;
        }
        if (above && n < m) continue;
        double sum = 0, size = 0;
        for (int64_t k = 0; k < K; ++k) {
          const double term = static_cast<double>(A.data[m * A.row + k * A.column]) *
                              static_cast<double>(B.data[k * B.row + n * B.column]);
          sum += term;
          size += std::abs(term);
        }
        const double right = static_cast<double>(alpha) * sum + static_cast<double>(beta) * 0.5;
        const double bound = static_cast<double>(K + 3) * 0x1p-24 * (std::abs(static_cast<double>(alpha)) * size + 1);
        count += !(std::abs(found - right) <= bound);
      }
    }
    return count;
  }
};

const Bf16Kernels& bf16_of(const KernelSet& set, const std::string& precision) {
  return precision == "amx-model" ? amx_model::kernels : bf16_kernels(set, precision == "bf16-emulated");
}

void gemm(const KernelSet& named, int threads, const std::string& precision) {
  const Bf16Kernels* bf16 = precision == "fp32" ? nullptr : &bf16_of(named, precision);
  KernelSet set = named;
  if (bf16 != nullptr) set.panel = bf16->panel;  // the model's is another set's
  ThreadPool pool(threads, false);
  Products products(pool, set, bf16);
  // What a product leaves behind in the memory for packing is no part of the next.
  std::vector<float> nans(static_cast<size_t>(kMostRows * 328), std::nanf("")), result(nans.size());
  products.gemm(kMostRows, 48, 328, row_major(nans.data(), 328), row_major(nans.data(), 48), result.data(), 48);
  std::mt19937 random(1);
  long count = 0, wrong = 0;
  const auto check = [&](const Product& product) {
    ++count;
    wrong += product.wrong(products, bf16 != nullptr, random) != 0;
  };
  const int64_t sizes[] = {1, 5, 6, 7, 12, 13, 16, 17, 97};
  for (int64_t M : sizes) {
    for (int64_t N : sizes) {
      for (int64_t K : sizes) {
        const int way = static_cast<int>(count % 4);
        check({M, N, K, way % 2 == 1, way >= 2, false, 1, count % 3 == 0 ? 1.0f : 0.0f});
      }
    }
  }
  // Several row blocks, column groups and blocks of the depth; more columns than rows; results known to be symmetric.
  for (int way = 0; way < 4; ++way) {
    const bool a = way % 2 == 1, b = way >= 2;
    check({200, 50, 700, a, b, false, -0.5f, 1});
    check({3, 800, 400, a, b, false, 2, 0});
    check({1, 2000, 17, a, b, false, 1, 0});
    check({35, 35, 450, a, b, true, 1, 0});
    check({70, 70, 9, a, b, true, 1, 0});
    if (!b) check({345, 345, 190, a, b, true, 1, 0});  // more rows than are packed at once
  }
  std::printf("{\"products\": %ld, \"wrong\": %ld}\n", count, wrong);
}

// Sums of int8 products of awkward sizes, the largest that fit among them: exact, and nothing else is written.
void integers(const KernelSet& set) {
  std::mt19937 random(1);
  long rows = 0, wrong = 0;
  for (int depth : {1, 3, 8, 15, 16, 17, 31, 33, 64, 65, 100, 650, 1500}) {
    const int most = std::min<int>(kMostOfInt8, INT32_MAX / (128 * depth));
    for (int M : {1, 2, 7, 64}) {
      const int a_row = depth + M % 3;
      std::vector<int8_t> a(static_cast<size_t>(M * a_row));
      std::vector<int16_t> x(static_cast<size_t>(depth));
      const bool extreme = M == 2;
      for (int8_t& value : a) value = static_cast<int8_t>(extreme ? -128 : static_cast<int>(random() % 256) - 128);
      for (int16_t& value : x) {
        const int drawn = static_cast<int>(random() % static_cast<unsigned>(2 * most + 1)) - most;
        value = static_cast<int16_t>(extreme ? most : drawn / (depth % 2 == 0 ? 1 : 2));
      }
      constexpr int32_t kMark = 12345;
      std::vector<int32_t> sums(static_cast<size_t>(M + 1), kMark);
      set.multiply_int8(M, depth, a.data(), a_row, x.data(), sums.data());
      wrong += sums[static_cast<size_t>(M)] != kMark;
      for (int m = 0; m < M; ++m, ++rows) {
        int64_t right = 0;
        for (int k = 0; k < depth; ++k)
          right += int64_t{a[static_cast<size_t>(m * a_row + k)]} * x[static_cast<size_t>(k)];
        wrong += right != sums[static_cast<size_t>(m)];
      }
    }
  }
  std::printf("{\"rows\": %ld, \"wrong\": %ld}\n", rows, wrong);
}

// Sums of exponentials of every size up to a few vectors and beyond a chunk, within 1e-6 of double's; the largest of
// them where it may stand first or last, NaN and infinity anywhere. Those of exponentials() are the portable set's
// bits.
void exponentials(const KernelSet& set) {
  std::mt19937 random(1);
  std::normal_distribution<float> gaussian(0, 5);
  const float infinity = std::numeric_limits<float>::infinity();
  long sums = 0, wrong = 0;
  for (size_t n = 1; n < 13000; n < 70 ? ++n : n = 2 * n + 1) {
    for (int repeat = 0; repeat < 20; ++repeat, ++sums) {
      std::vector<float> x(n);
      for (float& value : x) value = gaussian(random);
      const size_t place = repeat % 3 == 0 ? 0 : repeat % 3 == 1 ? n - 1 : random() % n;
      if (repeat < 15) x[place] = 40 - static_cast<float>(repeat) * 10;  // far above all others, or below
      if (repeat == 15) x[place] = -infinity;
      if (repeat >= 16) x[place] = repeat % 2 == 0 ? std::nanf("") : infinity;
      float highest;
      const double found = set.sum_of_exponentials(n, x.data(), &highest);
      std::vector<float> each(n), portable(n);
      const double sum = set.exponentials(n, x.data(), each.data());
      const double same = kernel_set("portable").exponentials(n, x.data(), portable.data());
      if (repeat >= 16) {
        wrong += !std::isnan(found) || std::isfinite(sum);
        continue;
      }
      const float largest = *std::max_element(x.begin(), x.end());
      if (largest == -infinity) continue;
      double right = 0;
      for (const float value : x) right += std::exp(static_cast<double>(value - largest));
      wrong += sum != same || each != portable;
      wrong += highest != largest || !(std::abs(found / right - 1) < 1e-6) || !(std::abs(sum / right - 1) < 1e-6);
    }
  }
  std::printf("{\"sums\": %ld, \"wrong\": %ld}\n", sums, wrong);
}

// H and random signs of every size of block, against a plain loop in the promised order: the same bits.
void rotation(const KernelSet& set) {
  std::mt19937 random(1);
  std::normal_distribution<float> gaussian;
  long blocks = 0, wrong = 0;
  for (size_t size = 64; size <= 4096; size *= 2) {
    for (int repeat = 0; repeat < 20; ++repeat, ++blocks) {
      std::vector<float> x(size), right;
      for (float& value : x) value = random() % 8 == 0 ? -0.0f : gaussian(random);
      std::vector<uint64_t> words(size / 64);
      for (uint64_t& word : words) word = uint64_t{random()} << 32 | random();
      right = x;
      set.change_signs(size, words.data(), x.data());
      set.hadamard(size, x.data());
      for (size_t i = 0; i < size; ++i) {
        if (words[i / 64] >> i % 64 & 1) right[i] = -right[i];
      }
      std::vector<size_t> strides;
      for (size_t stride = 64; stride < size; stride *= 2) strides.push_back(stride);
      for (size_t stride = 1; stride < 64; stride *= 2) strides.push_back(stride);
      for (const size_t stride : strides) {
        for (size_t i = 0; i < size; ++i) {
          if ((i & stride) != 0) continue;
          const float first = right[i], second = right[i + stride];
          right[i] = first + second;
          right[i + stride] = first - second;
        }
      }
      wrong += std::memcmp(x.data(), right.data(), size * sizeof(float)) != 0;
    }
  }
  std::printf("{\"blocks\": %ld, \"wrong\": %ld}\n", blocks, wrong);
}

// An update's deltas, their norms and the integers they become, against plain loops in the promised order: the same
// bits. Half of all deltas are whole steps and a half, and some integers are above 2^50.
void deltas(const KernelSet& set) {
#pragma STDC FP_CONTRACT OFF
  std::mt19937_64 random(1);
  std::normal_distribution<double> gaussian;
  long compared = 0, wrong = 0;
  for (size_t n = 0; n <= 200; n += 8) {
    for (int repeat = 0; repeat < 48; ++repeat) {
      const double scale = std::ldexp(1.0, repeat - 40);
      std::vector<float> trained(n), base(n);
      for (size_t i = 0; i < n; ++i) {
        base[i] = random() % 8 == 0 ? 0 : static_cast<float>(gaussian(random));
        const double half = std::ldexp(static_cast<double>(random() % 4096) - 2048, -33);
        trained[i] = static_cast<float>(random() % 2 == 0 ? half : base[i] + scale * gaussian(random));
        if (random() % 2 == 0) base[i] = 0;
      }
      std::vector<double> found(n);
      const DeltaNorms norms = set.measure_deltas(n, trained.data(), base.data(), found.data());
      double largest = 0, sums[8] = {}, squares[8] = {}, sum = 0, square = 0;
      for (size_t i = 0; i < n; ++i) {
        const double delta = static_cast<double>(trained[i]) - base[i];
        wrong += found[i] != delta;
        largest = std::max(largest, std::fabs(delta));
        sums[i % 8] += std::fabs(delta);
        const double squared = delta * delta;
        squares[i % 8] += squared;
      }
      for (int lane = 0; lane < 8; ++lane) sum += sums[lane], square += squares[lane];
      wrong += norms.largest != largest || norms.sum != sum || norms.squares != square;
      const bool towards_zero = repeat % 2 == 0;
      const DeltaSteps steps{0x1p32 * (towards_zero ? 0.37 : 1), towards_zero,
                             1 + static_cast<int64_t>(random() % 9999)};
      const bool small = largest * steps.factor * static_cast<double>(steps.weight) < 0x1p50;
      for (size_t count = n; count + 8 > n && count <= n; --count, ++compared) {
        std::vector<int64_t> added(n + 1, 7);
        set.add_deltas(count, found.data(), steps, small, added.data());
        for (size_t i = 0; i <= n; ++i) {
          int64_t right = 7;
          if (i < count) {
            const double exact = found[i] * steps.factor;
            right += static_cast<int64_t>(towards_zero ? std::trunc(exact) : std::rint(exact)) * steps.weight;
          }
          wrong += added[i] != right;
        }
      }
    }
  }
  std::printf("{\"deltas\": %ld, \"wrong\": %ld}\n", compared, wrong);
}

uint64_t hash_of(const std::vector<float>& numbers) {  // FNV-1a
  uint64_t hash = 0xcbf29ce484222325u;
  for (const float x : numbers) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    hash = (hash ^ (x != x ? 0x7fc00000u : bits)) * 0x100000001b3u;  // CPUs differ in the sign of a NaN
  }
  return hash;
}

void bits(const KernelSet& set) {
  const std::vector<float> xs = sample();
  std::vector<float> results(xs.size());
  const std::pair<const char*, Function> all[] = {
      {"exp", set.exponential}, {"sigmoid", set.sigmoid}, {"tanh", set.hyperbolic_tangent}};
  std::printf("{");
  for (const auto& [name, function] : all) {
    function(xs.data(), results.data(), xs.size());
    std::printf("\"%s\": \"%016llx\", ", name, static_cast<unsigned long long>(hash_of(results)));
  }
  constexpr int kCells = 1000;
  std::vector<float> gates(4 * kCells), before(kCells), c(kCells), h(kCells);
  for (size_t i = 0; i < gates.size(); ++i) gates[i] = static_cast<float>(i * 2654435761u % 16384) / 1024 - 8;  // exact
  for (size_t i = 0; i < before.size(); ++i) before[i] = static_cast<float>(i * 40503u % 4096) / 1024 - 2;
  set.lstm_cell(kCells, gates.data(), kCells, before.data(), c.data(), h.data());
  c.insert(c.end(), h.begin(), h.end());
  set.coupled_cell(kCells, gates.data(), kCells, before.data(), before.data(), h.data());
  before.insert(before.end(), h.begin(), h.end());
  set.exponentials(gates.size(), gates.data(), gates.data());
  std::printf("\"cell\": \"%016llx\", \"coupled cell\": \"%016llx\", \"exponentials\": \"%016llx\"}\n",
              static_cast<unsigned long long>(hash_of(c)), static_cast<unsigned long long>(hash_of(before)),
              static_cast<unsigned long long>(hash_of(gates)));
}

#if defined(__aarch64__)
// A caller's ZA, which it left to be saved (Arm's AAPCS64): a product by SME saves it where TPIDR2 says.
__attribute__((target("sme"))) void lazily_saved(const KernelSet& set) {
  uint64_t bytes;
  __asm__ volatile("rdsvl %0, #1" : "=r"(bytes));
  std::vector<uint8_t> kept(bytes * bytes), saved(kept.size());
  for (size_t i = 0; i < kept.size(); ++i) kept[i] = static_cast<uint8_t>(i * 31);
  struct {
    void* buffer;
    uint64_t slices;
  } block{saved.data(), bytes};
  __asm__ volatile("smstart za");
  for (uint64_t row = 0; row < bytes; ++row) {
    __asm__ volatile("mov w12, %w0\nldr za[w12, 0], [%1]"
                     :
                     : "r"(row), "r"(kept.data() + row * bytes)
                     : "x12", "memory");
  }
  __asm__ volatile("msr TPIDR2_EL0, %0" : : "r"(&block) : "memory");
  float a[32] = {1}, b[32] = {2}, c = 0;
  set.multiply(1, 1, 1, a, 1, 0, b, &c, 1, 1, 0);
  uint64_t left;
  __asm__ volatile("mrs %0, TPIDR2_EL0" : "=r"(left) : : "memory");
  std::printf("{\"products\": %g, \"saved\": %d, \"left\": %d}\n", static_cast<double>(c), saved == kept, left != 0);
}
#endif

}  // namespace

int main(int count, char** arguments) {
  const std::string what = count < 3 ? "" : arguments[1];
  if (count < 3 || (what == "rounding" && count < 4) || (what == "gemm" && count < 5)) return 2;
  const KernelSet& set = kernel_set(arguments[2]);
  if (what == "functions") {
    functions(set, count > 3 ? std::atof(arguments[3]) : 0);
  } else if (what == "rounding") {
    rounding(bf16_of(set, arguments[3]));
  } else if (what == "integers") {
    integers(set);
  } else if (what == "exponentials") {
    exponentials(set);
  } else if (what == "rotation") {
    rotation(set);
  } else if (what == "deltas") {
    deltas(set);
  } else if (what == "bits") {
    bits(set);
#if defined(__aarch64__)
  } else if (what == "za") {
    lazily_saved(set);
#endif
  } else {
    gemm(set, std::atoi(arguments[3]), arguments[4]);
  }
}
