// The precision that trains faster on this CPU: products are most of a step, and some CPUs have bf16 instructions that
// are slower than their fp32 ones.
#pragma once

#include "engine/parameters.h"

namespace phonograd {

// Speed of a product of the size that a step has many of, in GFLOP/s. bf16: 0 on a CPU without its instructions.
struct ProductRates {
  double fp32 = 0, bf16 = 0;
};

// Measured now, in about 50 ms, with the options' threads and kernels. Throws what Compute's constructor throws.
ProductRates product_rates(const EngineOptions& options);

// bf16 if it is faster by more than a measurement is off: a saved state belongs to one precision.
Precision faster_precision(const ProductRates& rates);

}  // namespace phonograd
