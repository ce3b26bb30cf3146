#include "engine/faster_precision.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/bf16.h"
#include "kernels/gemm.h"

namespace phonograd {
namespace {

constexpr double kFaster = 1.1;
constexpr int kRepeats = 9;
// The block of an output layer: T·B of 20 x 10, words, and H of 650.
constexpr int64_t kM = 200, kN = 1024, kK = 650;

// Times a product on the threads of a pool, in GFLOP/s of its best run.
class ProductTimer {
 public:
  ProductTimer(ThreadPool& pool, const KernelSet& set, const Bf16Kernels* bf16) : products_(pool, set, bf16) {}

  void run(const std::vector<float>& a, const std::vector<float>& b, std::vector<float>* c) {
    const auto began = std::chrono::steady_clock::now();
    products_.gemm(kM, kN, kK, row_major(a.data(), kK), row_major(b.data(), kN), c->data(), kN);
    best_ = std::min(best_, std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  }

  double gflops() const { return 2e-9 * kM * kN * kK / best_; }

 private:
  Products products_;
  double best_ = HUGE_VAL;
};

}  // namespace

ProductRates product_rates(const EngineOptions& options) {
  const KernelSet& set = kernel_set(options.kernels.c_str());
  const std::vector<float> a(kM * kK, 0.5f), b(kK * kN, 0.25f);  // [T*B,H], [H,V]
  std::vector<float> c(kM * kN);                                 // [T*B,V]
  ThreadPool pool(options.threads, options.pin_threads);
  ProductTimer fp32(pool, set, nullptr);
  std::optional<ProductTimer> bf16;
  if (const Bf16Kernels* kernels = bf16_instructions(set)) bf16.emplace(pool, set, kernels);
  for (int i = 0; i < kRepeats; ++i) {  // in turn, so that both meet what else runs
    fp32.run(a, b, &c);
    if (bf16) bf16->run(a, b, &c);
  }
  return {fp32.gflops(), bf16 ? bf16->gflops() : 0};
}

Precision faster_precision(const ProductRates& rates) {
  return rates.bf16 > kFaster * rates.fp32 ? Precision::bf16 : Precision::fp32;
}

}  // namespace phonograd
