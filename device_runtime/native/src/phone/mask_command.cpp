// `phonograd-phone mask`: the next step of a phone's part in a masked round; `identity`: the phone's key.
#include <unistd.h>

#include "base/error.h"
#include "base/files.h"
#include "base/peak_memory.h"
#include "base/places.h"
#include "engine/running_engine.h"
#include "masked/identity.h"
#include "masked/phone.h"
#include "phone/commands.h"
#include "phone/print.h"
#include "update/update_file.h"

namespace phonograd::phone {
namespace {

constexpr size_t kMostBytes = size_t{64} << 20;  // of an answer

Syntax syntax() {
  Syntax syntax{"mask", "GRID", "Say what a phone sends next in a masked round.", {}};
  syntax.options = {
      {"--round", "N", "The server's round."},
      {"--phone", "NAME", "The phone's name at the server."},
      {"--state", "DIR", "Folder of this phone at this server: the round's secrets, and what it knows of rounds."},
      {"--identity", "FILE", "The phone's key: see phonograd-phone identity."},
      {"--certificate", "HEX", "The vendor's, of this phone's name and key. [default: none]"},
      {"--vendor", "HEX", "The vendor's public key. [default: phones are known by the key that they had first]"},
      {"--min-cohort", "N", "The fewest phones that this phone takes part with. [default: 50]"},
      {"--answer", "FILE", "The server's answer to the last request; of an upload, an empty file."},
      {"--threads", "N", "CPU threads, 1 to " + std::to_string(kMaxThreads) + ". [default: 2]"},
  };
  return syntax;
}

MaskedPhoneSettings settings_of(const Arguments& arguments) {
  MaskedPhoneSettings settings;
  for (const char* name : {"--round", "--phone", "--state", "--identity"}) arguments.required(name);
  settings.grid = arguments.positional();
  settings.round = static_cast<uint64_t>(arguments.integer("--round", 1, 1, kMaxCount));
  settings.phone = arguments.text("--phone");
  settings.folder = arguments.text("--state");
  settings.identity = arguments.text("--identity");
  settings.certificate = arguments.text("--certificate");
  if (arguments.has("--vendor")) settings.vendor = arguments.text("--vendor");
  settings.min_cohort = arguments.integer("--min-cohort", settings.min_cohort, 1, kMaxCount);
  settings.threads = static_cast<int>(arguments.integer("--threads", settings.threads, 1, kMaxThreads));
  return settings;
}

int run(const Arguments& arguments) {
  const MaskedPhoneSettings settings = settings_of(arguments);
  MaskedPhone phone(settings);
  if (arguments.has("--answer")) phone.take(read_file(arguments.text("--answer"), kMostBytes, Status::update));
  JsonLine line("request");
  phone.request().add_to(line);
  print(line.integer("peak_rss_bytes", peak_rss_bytes()));
  return 0;
}

int run_identity(const Arguments& arguments) {
  const std::string& path = arguments.positional();
  const bool made = access(path.c_str(), F_OK) != 0;
  if (made) make_folder_of(path);
  const std::string key = public_identity(made ? new_identity(path) : read_identity(path));
  print(JsonLine("identity").text("path", path).text("public_key", key).raw("made", made ? "true" : "false"));
  return 0;
}

}  // namespace

Command mask_command() {
  return {syntax(), run};
}

Command identity_command() {
  return {{"identity", "FILE", "Print the phone's key for masked rounds; make it at first.", {}}, run_identity};
}

}  // namespace phonograd::phone
