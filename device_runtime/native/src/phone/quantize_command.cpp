// `phonograd-phone quantize`: int8 weights for prediction from a model's.
#include "base/error.h"
#include "formats/sha256.h"
#include "phone/commands.h"
#include "phone/print.h"
#include "predict/quantize.h"

namespace phonograd::phone {
namespace {

Syntax syntax() {
  Syntax syntax{"quantize", "ARTIFACTS", "Write a model's prediction weights, in int8: a quarter of its size.", {}};
  syntax.options = {
      {"--weights", "FILE", "Tensor file to quantize (such as a later round's model). [default: the folder's weights]"},
      {"--out", "FILE", "Prediction weights to write, for predict --weights."},
  };
  return syntax;
}

int run(const Arguments& arguments) {
  arguments.required("--out");
  const std::string out = arguments.text("--out");
  const size_t bytes = quantize(read_manifest(arguments.positional()), arguments.text("--weights"), out);
  JsonLine line("quantized");
  line.text("path", out).integer("nbytes", static_cast<int64_t>(bytes));
  print(line.text("sha256", sha256_of_file(out, Status::storage)));
  return 0;
}

}  // namespace

Command quantize_command() {
  return {syntax(), run};
}

}  // namespace phonograd::phone
