// pg_faster_precision, and pg_bench_kernel: single kernels on generated operands, for `phonograd bench kernels`.
#include <chrono>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "capi/border.h"
#include "capi/handles.h"
#include "engine/compute.h"
#include "engine/faster_precision.h"
#include "kernels/bf16.h"
#include "phonograd.h"

namespace {

using namespace phonograd;

constexpr int64_t kMostElements = int64_t{1} << 28;

std::vector<float> random_values(int64_t elements) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> between(-1, 1);
  std::vector<float> values(static_cast<size_t>(elements));
  for (float& value : values) value = between(random);
  return values;
}

// Checked sizes: no product of two exceeds kMostElements.
struct Sizes {
  int64_t M, N, K;

  Sizes(int64_t m, int64_t n, int64_t k) : M(m), N(n), K(k) {
    const bool positive = M > 0 && N > 0 && K > 0;
    border::require(positive && M <= kMostElements / N && M <= kMostElements / K && N <= kMostElements / K,
                    "sizes " + std::to_string(M) + ", " + std::to_string(N) + ", " + std::to_string(K) +
                        "; expected at least 1 each and matrices of at most 2^28 elements");
  }
};

std::function<void()> product(Compute& compute, const std::string& name, Sizes s) {
  const bool a_transposed = name == "gemm_tn", b_transposed = name == "gemm_nt";
  return [&compute, s, a_transposed, b_transposed, a = random_values(s.M * s.K), b = random_values(s.K * s.N),
          c = random_values(s.M * s.N)]() mutable {
    Matrix A = row_major(a.data(), a_transposed ? s.M : s.K), B = row_major(b.data(), b_transposed ? s.K : s.N);
    if (a_transposed) A = transpose(A);
    if (b_transposed) B = transpose(B);
    compute.products.gemm(s.M, s.N, s.K, A, B, c.data(), s.N, 1e-6f, 1);
  };
}

// Each thread takes a share of the rows, as in a sweep over time.
std::function<void()> product_of_rows(Compute& compute, Sizes s) {
  return [&compute, s, a = random_values(s.M * s.K), x = random_values(s.N * s.K),
          c = random_values(s.M * s.N)]() mutable {
    compute.pool.run([&](int thread) {
      const int64_t threads = compute.pool.threads(), first = s.M * thread / threads;
      const int64_t rows = s.M * (thread + 1) / threads - first;
      compute.kernels.multiply_rows(static_cast<int>(rows), static_cast<int>(s.N), static_cast<int>(s.K),
                                    a.data() + first * s.K, s.K, x.data(), s.K, c.data() + first * s.N, s.N, 0);
    });
  };
}

std::function<void()> map_of_elements(Compute& compute, void (*function)(const float*, float*, size_t), int64_t N) {
  return [&compute, function, N, x = random_values(N), y = random_values(N)]() mutable {
    compute.pool.run([&](int thread) {
      const int64_t threads = compute.pool.threads(), first = N * thread / threads;
      function(x.data() + first, y.data() + first, static_cast<size_t>(N * (thread + 1) / threads - first));
    });
  };
}

constexpr std::string_view kBf16 = "_bf16";  // suffix of a product that rounds its operands

bool rounds(const std::string& name) {
  return name.size() > kBf16.size() && name.compare(name.size() - kBf16.size(), kBf16.size(), kBf16) == 0;
}

std::function<void()> work_of(Compute& compute, const std::string& name, Sizes sizes) {
  const KernelSet& kernels = compute.kernels;
  if (name == "gemm_nn" || name == "gemm_nt" || name == "gemm_tn") return product(compute, name, sizes);
  if (name == "gemm_rows") return product_of_rows(compute, sizes);
  if (name == "exp") return map_of_elements(compute, kernels.exponential, sizes.N);
  if (name == "sigmoid") return map_of_elements(compute, kernels.sigmoid, sizes.N);
  if (name == "tanh") return map_of_elements(compute, kernels.hyperbolic_tangent, sizes.N);
  throw Error(Status::usage, "kernel '" + name +
                                 "'; expected one of gemm_nn, gemm_nt, gemm_tn, gemm_rows, exp, sigmoid, "
                                 "tanh");
}

}  // namespace

extern "C" pg_status pg_faster_precision(const pg_options* options, double* gflops, int32_t* precision) {
  return border::run_guarded([&] {
    border::require(gflops != nullptr && precision != nullptr, "gflops or precision: NULL");
    const ProductRates rates = product_rates(engine_options_of(options));
    gflops[0] = rates.fp32;
    gflops[1] = rates.bf16;
    *precision = static_cast<int32_t>(faster_precision(rates));
  });
}

extern "C" pg_status pg_bench_kernel(const char* kernels, const char* name, int64_t M, int64_t N, int64_t K,
                                     int32_t threads, int32_t repeats, double* seconds) {
  return border::run_guarded([&] {
    border::require(name != nullptr && seconds != nullptr, "name or seconds: NULL");
    border::require(threads >= 1 && threads <= 64, "threads: " + std::to_string(threads) + "; expected 1 to 64");
    const KernelSet& set = kernel_set(kernels);
    std::string function = name;
    const bool bf16 = rounds(function);
    if (bf16) function.resize(function.size() - kBf16.size());
    Compute compute(threads, false, set, bf16 ? &bf16_kernels(set, false) : nullptr);
    const std::function<void()> work = work_of(compute, function, Sizes(M, N, K));
    work();  // the first call allocates
    for (int32_t i = 0; i < repeats; ++i) {
      const auto began = std::chrono::steady_clock::now();
      work();
      seconds[i] = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    }
  });
}
