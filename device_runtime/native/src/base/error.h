// How the core reports what is a user's to mend: one exception type, turned into a status at the C ABI and into an exit
// code by the phone command. The numbers are those of device_runtime/base/errors.py and README.md.
#pragma once

#include <stdexcept>
#include <string>

namespace phonograd {

enum class Status : int {
  ok = 0,
  bug = 1,
  usage = 2,
  text = 3,
  vocabulary = 4,
  artifacts = 5,  // also: a graph with an operator, shape or attribute that the engine does not know
  weights = 6,
  update = 7,
  unsupported = 10,  // the CPU lacks what was asked for (--precision bf16)
  storage = 11,
  training = 12,  // a loss or weight left the finite numbers
  state = 17,     // a training state is damaged, in use, or another job's
  out_of_memory = 26,
};

// `what()` is one line that names the thing, what was expected, what was found, and the next step.
class Error : public std::runtime_error {
 public:
  Error(Status status, const std::string& message) : std::runtime_error(message), status_(status) {}
  Status status() const { return status_; }

 private:
  Status status_;
};

}  // namespace phonograd
