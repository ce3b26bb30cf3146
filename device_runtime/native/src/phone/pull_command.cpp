// `phonograd-phone pull`: the next model from the links that lead to it, or from the whole model.
#include <cstdio>

#include "base/error.h"
#include "base/peak_memory.h"
#include "phone/commands.h"
#include "phone/print.h"
#include "phone/stopping.h"
#include "update/pull.h"

namespace phonograd::phone {
namespace {

Syntax syntax() {
  Syntax syntax{"pull", "FETCHED", "Write the next model, from a file that the server sent.", {}};
  syntax.options = {
      {"--base", "FILE", "The model that the phone has, from which links lead. [default: none]"},
      {"--sha256", "HEX", "SHA-256 of the model that the server was asked for."},
      {"--out", "FILE", "Where to write that model; may be the file of --base."},
  };
  return syntax;
}

int run(const Arguments& arguments) {
  arguments.required("--sha256");
  arguments.required("--out");
  const PullSettings settings{arguments.positional(), arguments.text("--base"), arguments.text("--sha256"),
                              arguments.text("--out")};
  note_stop_signals();
  const std::optional<Pulled> pulled = pull(settings, [] { return stop_signal() != 0; });
  if (!pulled) {
    std::fprintf(stderr, "phonograd-phone: interrupted; nothing is written: run the same command again\n");
    return kSignalled + stop_signal();
  }
  JsonLine line("pulled");
  line.text("path", settings.out).integer("nbytes", static_cast<int64_t>(pulled->bytes));
  line.text("sha256", settings.sha256).integer("links", pulled->links);
  print(line.integer("peak_rss_bytes", peak_rss_bytes()));
  return 0;
}

}  // namespace

Command pull_command() {
  return {syntax(), run};
}

}  // namespace phonograd::phone
