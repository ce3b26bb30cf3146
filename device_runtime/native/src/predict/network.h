// A language model one word at a time, for inference only: what eval_model.onnx computes, without its plan or arena.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "formats/manifest.h"
#include "kernels/kernel_set.h"
#include "predict/weights.h"

namespace phonograd {

// One caller at a time. With int8 weights, results are the same bits on every CPU, with any kernels and threads: sums
// are exact, and cells are computed by the portable kernels.
class Network {
 public:
  // The weights and the pool must outlive this. Throws Error(weights) unless the file has the manifest's tensors.
  Network(const Manifest& manifest, PredictionWeights& weights, ThreadPool& pool, const KernelSet& kernels);

  // Floats of a recurrent state: of each layer h [H], of a CIFG before its projection, and c [H] but for GRUs.
  size_t state_size() const { return layers_.size() * static_cast<size_t>(states_ * H_); }
  // Advance a state by one word, an id in [0, V).
  void step(int64_t word, float* state);
  // Scores [V] of every next word.
  void scores(const float* state, float* scores);

 private:
  struct Layer {
    WeightMatrix W, R;          // [G*H, I], [G*H, what is fed back]
    WeightMatrix P;             // CIFG: [E, H]
    std::vector<float> biases;  // [G*H]: of the input, and the recurrent ones where they are only added
    const float* inside;        // GRU: the recurrent biases [H] of the gate that is reset
  };

  void read_layers(const Manifest& manifest, PredictionWeights& weights);
  void lstm(const Layer& layer, const float* x, float* h, float* c);
  void gru(const Layer& layer, const float* x, float* h);
  // What a layer outputs and is fed back: h; of a CIFG P h, in `memory`.
  const float* fed_back(const Layer& layer, const float* h, std::vector<float>& memory);
  void embed(int64_t word, float* x) const;
  // y[m] += sum_k matrix[m, k] x[k]
  void add_product(const WeightMatrix& matrix, const float* x, float* y);
  void add_integer_product(const WeightMatrix& matrix, const float* x, float* y);

  ThreadPool& pool_;
  const KernelSet &kernels_, &cells_;  // of products, and of all else
  bool lstm_, coupled_;
  int64_t H_, fed_, states_, gates_;
  WeightMatrix embedding_, projection_, decoder_;
  const float* output_bias_ = nullptr;
  std::vector<Layer> layers_;
  std::vector<float> x_, g_, q_;  // an input; gates; GRU: R_h h, CIFG: P h
  std::vector<float> low_;        // A x of an adapter
  std::vector<int16_t> rounded_;  // an input of an int8 product
};

}  // namespace phonograd
