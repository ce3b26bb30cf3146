#include "predict/network.h"

#include <algorithm>
#include <cmath>
#include <cstring>

// Products and sums are rounded one by one on every CPU, so that int8 predictions are the same everywhere.
#pragma clang fp contract(off)

namespace phonograd {
namespace {

// Rows that a thread takes at a time.
constexpr int64_t kRows = 128;

// x [n] as whole numbers times the result, the smallest scale with which sums of products with int8 fit int32. NaN for
// an x that is not finite; then the numbers are 0.
float round_to_integers(const float* x, int64_t n, int16_t* rounded) {
  uint32_t bits = 0;  // of the largest size; integers, so that NaN and infinity are above all numbers
  for (int64_t i = 0; i < n; ++i) {
    uint32_t one;
    std::memcpy(&one, x + i, sizeof one);
    bits = std::max(bits, one & 0x7fffffffu);
  }
  float largest;
  std::memcpy(&largest, &bits, sizeof largest);
  const int64_t most = std::min<int64_t>(kMostOfInt8, INT32_MAX / (128 * n));
  const float limit = static_cast<float>(most), scale = std::isfinite(largest) ? largest / limit : NAN;
  if (!(scale > 0)) {
    std::fill_n(rounded, n, int16_t{0});
    return scale;
  }
  constexpr float kShift = 12582912;  // 1.5 * 2^23: adding it rounds to the nearest whole number
  for (int64_t i = 0; i < n; ++i) {
    const float level = (x[i] / scale + kShift) - kShift;
    rounded[i] = static_cast<int16_t>(std::min(limit, std::max(-limit, level)));
  }
  return scale;
}

}  // namespace

Network::Network(const Manifest& manifest, PredictionWeights& weights, ThreadPool& pool, const KernelSet& kernels)
    : pool_(pool),
      kernels_(kernels),
      cells_(weights.int8() ? kernel_set("portable") : kernels),
      lstm_(manifest.cell != "gru"),
      coupled_(manifest.cell == "cifg"),
      H_(manifest.hidden),
      fed_(coupled_ ? manifest.embedding : H_),
      states_(lstm_ ? 2 : 1),
      gates_(manifest.cell == "lstm" ? 4 : 3) {
  const int64_t V = manifest.vocabulary, E = manifest.embedding;
  embedding_ = weights.matrix("embedding.weight", {V, E}, manifest.adapters);
  read_layers(manifest, weights);
  if (manifest.tied && E != fed_) projection_ = weights.matrix("projection.weight", {E, H_}, manifest.adapters);
  decoder_ = manifest.tied ? embedding_ : weights.matrix("decoder.weight", {V, fed_}, manifest.adapters);
  if (manifest.output_bias) output_bias_ = weights.vector("decoder.bias", {V});
  weights.require_no_more();
  x_.resize(static_cast<size_t>(std::max(E, H_)));
  g_.resize(static_cast<size_t>(gates_ * H_));
  q_.resize(x_.size());
  rounded_.resize(x_.size());
  low_.resize(static_cast<size_t>(manifest.adapters));
}

void Network::read_layers(const Manifest& manifest, PredictionWeights& weights) {
  const int64_t rows = gates_ * H_;
  for (int64_t number = 0; number < manifest.layers; ++number) {
    const std::string name = manifest.cell + "." + std::to_string(number) + ".";
    Layer layer;
    layer.W = weights.matrix(name + "W", {1, rows, number == 0 ? manifest.embedding : fed_}, manifest.adapters);
    layer.R = weights.matrix(name + "R", {1, rows, fed_}, manifest.adapters);
    if (coupled_) layer.P = weights.matrix(name + "P", {1, fed_, H_}, manifest.adapters);
    const float* biases = weights.vector(name + "B", {1, 2 * rows});
    const int64_t added = lstm_ ? rows : 2 * H_;
    for (int64_t m = 0; m < rows; ++m) layer.biases.push_back(m < added ? biases[m] + biases[rows + m] : biases[m]);
    layer.inside = lstm_ ? nullptr : biases + rows + added;
    layers_.push_back(std::move(layer));
  }
}

void Network::step(int64_t word, float* state) {
  embed(word, x_.data());
  const float* x = x_.data();
  for (const Layer& layer : layers_) {
    float* h = state;
    if (lstm_) {
      lstm(layer, x, h, h + H_);
    } else {
      gru(layer, x, h);
    }
    if (&layer != &layers_.back()) x = fed_back(layer, h, x_);
    state += states_ * H_;
  }
}

void Network::lstm(const Layer& layer, const float* x, float* h, float* c) {
  std::copy(layer.biases.begin(), layer.biases.end(), g_.begin());
  add_product(layer.W, x, g_.data());
  add_product(layer.R, fed_back(layer, h, q_), g_.data());
  (coupled_ ? cells_.coupled_cell : cells_.lstm_cell)(static_cast<int>(H_), g_.data(), H_, c, c, h);
}

const float* Network::fed_back(const Layer& layer, const float* h, std::vector<float>& memory) {
  if (!coupled_) return h;
  std::fill_n(memory.begin(), fed_, 0.0f);
  add_product(layer.P, h, memory.data());
  return memory.data();
}

void Network::gru(const Layer& layer, const float* x, float* h) {
  std::copy(layer.biases.begin(), layer.biases.end(), g_.begin());
  std::copy_n(layer.inside, H_, q_.begin());
  add_product(layer.W, x, g_.data());
  add_product(layer.R.part(0, 2 * H_), h, g_.data());
  add_product(layer.R.part(2 * H_, H_), h, q_.data());
  float *z = g_.data(), *r = z + H_, *n = r + H_;
  const auto units = static_cast<size_t>(H_);
  cells_.sigmoid(z, z, 2 * units);
  for (size_t u = 0; u < units; ++u) n[u] += r[u] * q_[u];
  cells_.hyperbolic_tangent(n, n, units);
  for (size_t u = 0; u < units; ++u) h[u] = (1 - z[u]) * n[u] + z[u] * h[u];
}

void Network::scores(const float* state, float* scores) {
  const float* h = state + (layers_.size() - 1) * static_cast<size_t>(states_ * H_);
  const float* x = fed_back(layers_.back(), h, x_);
  if (projection_.rows > 0) {
    std::fill_n(x_.begin(), projection_.rows, 0.0f);
    add_product(projection_, x, x_.data());
    x = x_.data();
  }
  if (output_bias_ != nullptr) {
    std::copy_n(output_bias_, decoder_.rows, scores);
  } else {
    std::fill_n(scores, decoder_.rows, 0.0f);
  }
  add_product(decoder_, x, scores);
}

void Network::embed(int64_t word, float* x) const {
  const WeightMatrix row = embedding_.part(word, 1);
  for (int64_t i = 0; i < row.columns; ++i) {
    x[i] = row.integers == nullptr ? row.floats[i] : static_cast<float>(row.integers[i]) * row.scales[0];
  }
  for (int64_t r = 0; r < row.rank; ++r) {
    for (int64_t i = 0; i < row.columns; ++i) x[i] += row.b[r] * row.a[r * row.columns + i];
  }
}

void Network::add_product(const WeightMatrix& matrix, const float* x, float* y) {
  if (matrix.integers != nullptr) return add_integer_product(matrix, x, y);
  const auto columns = static_cast<int>(matrix.columns);
  pool_.for_each((matrix.rows + kRows - 1) / kRows, [&](int64_t block, int) {
    const int64_t first = block * kRows;
    const auto rows = static_cast<int>(std::min(kRows, matrix.rows - first));
    kernels_.multiply_rows(rows, 1, columns, matrix.floats + first * columns, columns, x, columns, y + first, 1, 1);
  });
  if (matrix.rank == 0) return;
  const auto rank = static_cast<int>(matrix.rank), rows = static_cast<int>(matrix.rows);
  kernels_.multiply_rows(rank, 1, columns, matrix.a, columns, x, columns, low_.data(), 1, 0);
  kernels_.multiply_rows(rows, 1, rank, matrix.b, rank, low_.data(), rank, y, 1, 1);
}

void Network::add_integer_product(const WeightMatrix& matrix, const float* x, float* y) {
  const float x_scale = round_to_integers(x, matrix.columns, rounded_.data());
  const auto columns = static_cast<int>(matrix.columns);
  pool_.for_each((matrix.rows + kRows - 1) / kRows, [&](int64_t block, int) {
    const int64_t first = block * kRows, rows = std::min(kRows, matrix.rows - first);
    int32_t sums[kRows];
    kernels_.multiply_int8(static_cast<int>(rows), columns, matrix.integers + first * columns, columns, rounded_.data(),
                           sums);
    for (int64_t m = 0; m < rows; ++m) {
      y[first + m] += static_cast<float>(sums[m]) * (matrix.scales[first + m] * x_scale);
    }
  });
}

}  // namespace phonograd
