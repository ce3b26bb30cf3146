// The rounds of dp-ftrl that a phone took part in. It counts for itself, so that the limit holds even if the server
// loses its ledger. A JSON file, by run: {"RUN": [steps, rising], ...}.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace phonograd {

class RunHistory {
 public:
  // round: what the server says of its open round, JSON: {"run": SHA-256 of what is fixed in the run, "step": of the
  // run's rounds from 1, "min_separation", "max_participations"}. Reads the file, if there is one. Throws Error: usage
  // for another text, state for a damaged file, took_part if this phone must rest or has had its part in the run. A
  // step may be taken again: its round failed, or the phone did.
  RunHistory(const std::string& round, const std::string& path);

  // Keep that the phone takes part, durably: before there is an update. Throws Error(storage).
  void note();

 private:
  const std::string path_;
  std::map<std::string, std::vector<int64_t>> steps_;
  std::string run_;
  int64_t step_ = 0;
};

}  // namespace phonograd
