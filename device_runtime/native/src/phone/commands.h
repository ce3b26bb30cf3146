// The subcommands of phonograd-phone. Each prints JSON lines on stdout (README.md has their fields) and returns the
// exit code; errors are thrown.
#pragma once

#include <vector>

#include "phone/arguments.h"

namespace phonograd::phone {

// Kept equal to the Python package's by a test.
constexpr const char* kVersion = "0.1.0";

struct Command {
  Syntax syntax;
  int (*run)(const Arguments& arguments);
};

Command train_command();
Command eval_command();
Command predict_command();
Command bench_command();
Command info_command();

}  // namespace phonograd::phone
