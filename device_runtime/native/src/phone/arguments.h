// The command line of phonograd-phone: options declared once, parsed strictly, and shown by --help.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace phonograd::phone {

struct Option {
  std::string name;   // "--user"
  std::string value;  // what --help calls its value, "FILE"; "": a flag
  std::string help;
  bool repeatable = false;
};

// What a subcommand takes: one positional argument or none, and options.
struct Syntax {
  std::string command;     // "train"
  std::string positional;  // "ARTIFACTS", or "" for none
  std::string summary;
  std::vector<Option> options;

  std::string help() const;
};

// The name among `names` with the fewest edits from `wrong`; "" if none is near enough to be what was meant.
std::string nearest_name(const std::string& wrong, const std::vector<std::string>& names);

// The words separated by commas.
std::string comma_separated(const std::vector<std::string>& words);

// One parsed command line. Options are `--name value` or `--name=value`; `--` ends them. All methods throw
// Error(usage): an unknown option (with the nearest valid name), a missing, repeated or malformed value.
class Arguments {
 public:
  Arguments(const Syntax& syntax, const std::vector<std::string>& words);

  const std::string& positional() const { return positional_; }
  bool has(const std::string& name) const { return values_.count(name) != 0; }
  // The value of an option, or `absent` if it was not given.
  std::string text(const std::string& name, const std::string& absent = "") const;
  const std::vector<std::string>& texts(const std::string& name) const;  // of a repeatable option
  int64_t integer(const std::string& name, int64_t absent, int64_t least, int64_t most) const;
  // A number above `above` and at most `most`.
  double number(const std::string& name, double absent, double above, double most) const;
  std::string choice(const std::string& name, const std::string& absent, const std::vector<std::string>& choices) const;
  // At most one of the two may be given.
  void exclude(const std::string& first, const std::string& second) const;
  // Exactly one of the two must be given.
  void exactly_one(const std::string& first, const std::string& second) const;
  void required(const std::string& name) const;
  // `name` may be given only with `other`.
  void needs(const std::string& name, const std::string& other) const;

 private:
  [[noreturn]] void fail(const std::string& message) const;

  std::string command_;
  std::string positional_;
  std::map<std::string, std::vector<std::string>> values_;
};

}  // namespace phonograd::phone
