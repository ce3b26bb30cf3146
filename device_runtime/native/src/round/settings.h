// The settings of a phone's part in a round, and their defaults. The command `phonograd-phone train` and the C ABI fill
// them in; a limit that both check is here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/running_engine.h"
#include "training/state.h"
#include "update/update_file.h"

namespace phonograd {

constexpr double kMaxRate = 3.4e38;  // a float
constexpr int64_t kMaxEpochs = 1000000;

// A text: a file, or bytes in memory. At most one of them; neither: no text.
struct TextSource {
  std::string path;
  std::optional<std::string> bytes;

  bool is_given() const { return !path.empty() || bytes.has_value(); }
};

struct RoundSettings {
  // The model.
  std::string folder;          // the artifacts
  std::string weights;         // tensor file to start from; "": the folder's own
  std::string weights_sha256;  // of that file, if the caller knows it; "": it is hashed where its identity is needed
  EngineOptions engine;        // as for its threads, before they are limited to the cores; its seed is not used
  std::optional<Cores> cores;  // absent: all that the calling thread may use

  // What to train on: one of the three.
  TextSource user;
  std::string tokens;           // a token file
  std::vector<int64_t> stream;  // token ids [N]
  TextSource rehearsal;
  double user_share = 0.5;   // λ, with a rehearsal text; as in Python's TrainingConfig
  double max_unknown = 0.5;  // share of the user's words that an update may be of although the vocabulary lacks them

  // How.
  int64_t epochs = 1;
  int64_t steps = 0;                    // 1: a single step with the gradient of the whole text; 0: one step a window
  std::optional<double> learning_rate;  // absent: the artifacts'
  int64_t output_sample = 0;            // words drawn beside the text's own; 0: the softmax is over the vocabulary
  std::optional<uint64_t> sample_seed;  // absent: the state's, else random
  double duty = 1;                      // share of the wall time that steps take; the rest of it is rests between them
  uint64_t round = 1;                   // the server's number
  std::string phone;                    // name at the server: the seed follows from it, model and round
  std::optional<uint64_t> seed;         // in place of a name; absent as well: the state's, else random

  // What to write. "": nothing.
  std::string out;             // the trained weights
  std::string update;          // the update for the server
  int update_descriptor = -1;  // in place of a path: open for writing
  std::string codec = kRowsF32.name;
  std::string masked;        // the settings of a masked round: the update is a grid update, to be masked
  std::string run;           // what the server says of its round of dp-ftrl: see RunHistory; "": it is of none
  std::string run_history;   // with it: the file of the rounds that this phone took part in
  bool codec_costs = false;  // report the size of the update with each codec

  // Resuming.
  std::string state;  // folder; "": nothing is saved
  int64_t save_every = kSaveEvery;
  bool restart = false;  // discard the saved state
};

// Whether the settings ask for an update.
bool writes_update(const RoundSettings& settings);

// Throws Error: usage for settings that exclude each other, are out of range or lack something; update for an unknown
// codec.
void check_settings(const RoundSettings& settings);

}  // namespace phonograd
