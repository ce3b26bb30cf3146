// The subcommands of phonograd-phone. Each prints JSON lines on stdout (README.md lists their fields) and returns the
// exit code, or throws an Error.
#pragma once

#include <vector>

#include "phone/arguments.h"

namespace phonograd::phone {

struct Command {
  Syntax syntax;
  int (*run)(const Arguments& arguments);
};

Command train_command();
Command eval_command();
Command predict_command();
Command quantize_command();
Command pull_command();
Command mask_command();
Command identity_command();
Command bench_command();
Command info_command();

}  // namespace phonograd::phone
