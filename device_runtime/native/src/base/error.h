// Errors that a user can fix: one exception type, which the C ABI turns into a status and the phone command into an
// exit code. The numbers are those of device_runtime/base/errors.py and docs/exit-codes.md.
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
  unsupported = 10,  // the CPU lacks a requested feature (--precision bf16)
  storage = 11,
  training = 12,  // a loss or weight is NaN or infinite, or training diverged
  state = 17,     // a training state is damaged, in use, or belongs to another job
  out_of_memory = 26,
  took_part = 29,  // a phone has had its part: in this masked round or a later one, or in a run, and must rest
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
