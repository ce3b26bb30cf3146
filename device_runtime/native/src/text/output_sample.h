// The words that a sampled output layer is trained against. FORMAT.md, "Output sample".
#pragma once

#include <cstdint>
#include <vector>

namespace phonograd {

// Candidates C: ids, rising, and what is added to their logits, -log of each one's chance to be among them, so that the
// sum over C that a softmax divides by has the mean of that over the vocabulary.
struct OutputSample {
  std::vector<int64_t> candidates;
  std::vector<float> shifts;
};

// The words of `stream`, <unk> and <eos>, with a chance of 1, and others drawn each by itself, `drawn` of them in the
// mean, in proportion to the square root of their count. Ids of the stream are in [0, V); counts [V] at least 0; V at
// least 2, `drawn` at least 0. The seed stays on the phone: with it the server could tell the phone's own words from
// those drawn. Thread-safe.
OutputSample draw_output_sample(const std::vector<int64_t>& stream, const std::vector<int64_t>& counts, int64_t drawn,
                                uint64_t seed);

}  // namespace phonograd
