// What a program runs with.
#pragma once

#include "base/thread_pool.h"
#include "kernels/gemm.h"

namespace phonograd {

// Threads, kernels, and products on both. Not thread-safe: one program runs at a time.
struct Compute {
  // bf16: nullptr for fp32. Throws what ThreadPool throws.
  Compute(int threads, bool pin, const KernelSet& set, const Bf16Kernels* bf16 = nullptr)
      : pool(threads, pin), kernels(set), products(pool, set, bf16) {}

  ThreadPool pool;
  const KernelSet& kernels;
  Products products;
};

}  // namespace phonograd
