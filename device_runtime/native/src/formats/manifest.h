// manifest.json of an artifacts folder, as far as the phone needs it. FORMAT.md, "The artifacts folder".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace phonograd {

constexpr const char* kPredictionFile = "prediction.safetensors";
constexpr const char* kTeacherPrefix = "teacher.";  // of the names of an LwF teacher's values
// Of the data that the rules of text are built on.
constexpr std::string_view kUnicodeVersion = "15.0.0";

struct ManifestState {
  std::string input;           // the graph's input
  std::string output;          // and its value after the window
  std::vector<int64_t> shape;  // [1, B, H]
};

struct ManifestTensor {
  std::string name;
  std::vector<int64_t> shape;
};

struct Manifest {
  std::string folder;
  // model
  std::string cell;  // "lstm", "gru" or "cifg"
  int64_t vocabulary = 0, embedding = 0, hidden = 0, layers = 0;
  bool tied = false, output_bias = true;
  int64_t adapters = 0;  // their rank
  // training
  int64_t minibatch = 0, bptt = 0;
  double learning_rate = 0;
  bool clipped = false;
  double clip_norm = 0;        // 0 unless clipped
  std::string loss;            // "ce" or "lwf"
  std::string loss_reduction;  // "sum_over_time" or "mean"
  double user_share = 0, dropout = 0;
  std::vector<ManifestState> states;    // of the training graph, the teacher's included
  std::vector<ManifestTensor> tensors;  // trainable ones, in the order of the weights file
  std::string weights_sha256;           // of weights.safetensors: the model's identity
  bool predicts = false;                // whether it has prediction.safetensors
  std::vector<std::string> files;       // paths of all that belongs to the folder

  std::string path(const std::string& file) const { return folder + "/" + file; }
};

// Read and check `folder`/manifest.json (schema version 2) and that each file it lists is there with the size it
// gives. Throws Error(artifacts).
Manifest read_manifest(const std::string& folder);

}  // namespace phonograd
