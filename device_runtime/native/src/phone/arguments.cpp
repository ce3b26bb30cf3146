#include "phone/arguments.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "formats/json.h"

namespace phonograd::phone {
namespace {

// Levenshtein's distance: the fewest insertions, deletions and replacements that turn one word into the other.
size_t edits(const std::string& from, const std::string& to) {
  std::vector<size_t> row(to.size() + 1);
  for (size_t j = 0; j <= to.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= from.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= to.size(); ++j) {
      const size_t replaced = diagonal + (from[i - 1] == to[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[to.size()];
}

}  // namespace

std::string nearest_name(const std::string& wrong, const std::vector<std::string>& names) {
  std::string best;
  size_t fewest = wrong.size() / 2 + 1;  // with more than half of it mistyped, another word was meant
  if (wrong.size() > 64) return best;
  for (const std::string& name : names) {
    const bool begun = wrong.size() > 2 && name.compare(0, wrong.size(), wrong) == 0;
    const size_t distance = begun ? 0 : edits(wrong, name);
    if (distance < fewest) {
      fewest = distance;
      best = name;
    }
  }
  return best;
}

std::string Syntax::help() const {
  std::string out = "usage: phonograd-phone " + command;
  if (!positional.empty()) out += " " + positional;
  if (!options.empty()) out += " [OPTIONS]";
  out += "\n\n" + summary + "\n";
  if (!options.empty()) out += "\n";
  size_t width = 0;
  for (const Option& option : options) width = std::max(width, option.name.size() + 1 + option.value.size());
  for (const Option& option : options) {
    const std::string left = option.name + (option.value.empty() ? "" : " " + option.value);
    out += "  " + left + std::string(width - left.size() + 2, ' ') + option.help + "\n";
  }
  return out;
}

Arguments::Arguments(const Syntax& syntax, const std::vector<std::string>& words) : command_(syntax.command) {
  bool options_ended = false;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (options_ended || word.size() < 2 || word[0] != '-') {
      if (syntax.positional.empty() || !positional_.empty()) fail("unexpected argument " + word);
      if (word.empty()) fail(syntax.positional + " is empty");
      positional_ = word;
      continue;
    }
    if (word == "--") {
      options_ended = true;
      continue;
    }
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const auto option = std::find_if(syntax.options.begin(), syntax.options.end(),
                                     [&](const Option& candidate) { return candidate.name == name; });
    if (option == syntax.options.end()) {
      std::vector<std::string> names;
      for (const Option& candidate : syntax.options) names.push_back(candidate.name);
      const std::string meant = nearest_name(name, names);
      fail("no option " + name + (meant.empty() ? "" : "; did you mean " + meant + "?"));
    }
    std::vector<std::string>& values = values_[name];
    if (!values.empty() && !option->repeatable) fail(name + " is given twice");
    if (option->value.empty()) {
      if (equals != std::string::npos) fail(name + " takes no value");
      values.emplace_back();
    } else if (equals != std::string::npos) {
      values.push_back(word.substr(equals + 1));
    } else if (i + 1 < words.size()) {
      values.push_back(words[++i]);
    } else {
      fail(name + " needs a value: " + option->value);
    }
    if (!option->value.empty() && values.back().empty()) fail(name + ": the value is empty, expected " + option->value);
  }
  if (!syntax.positional.empty() && positional_.empty()) fail(syntax.positional + " is missing");
}

std::string Arguments::text(const std::string& name, const std::string& absent) const {
  const auto found = values_.find(name);
  return found == values_.end() ? absent : found->second.front();
}

const std::vector<std::string>& Arguments::texts(const std::string& name) const {
  static const std::vector<std::string> none;
  const auto found = values_.find(name);
  return found == values_.end() ? none : found->second;
}

int64_t Arguments::integer(const std::string& name, int64_t absent, int64_t least, int64_t most) const {
  if (!has(name)) return absent;
  const std::string value = text(name);
  char* end = nullptr;
  errno = 0;
  const long long number = std::strtoll(value.c_str(), &end, 10);
  if (errno != 0 || *end != '\0' || number < least || number > most) {
    fail(name + " " + value + ": expected a whole number from " + std::to_string(least) + " to " +
         std::to_string(most));
  }
  return number;
}

double Arguments::number(const std::string& name, double absent, double above, double most) const {
  if (!has(name)) return absent;
  const std::string value = text(name);
  char* end = nullptr;
  const double number = std::strtod(value.c_str(), &end);
  if (*end != '\0' || !std::isfinite(number) || number <= above || number > most) {
    fail(name + " " + value + ": expected a number above " + json::number(above) + " and at most " +
         json::number(most));
  }
  return number;
}

std::string comma_separated(const std::vector<std::string>& words) {
  std::string list;
  for (const std::string& word : words) list += (list.empty() ? "" : ", ") + word;
  return list;
}

std::string Arguments::choice(const std::string& name, const std::string& absent,
                              const std::vector<std::string>& choices) const {
  const std::string value = text(name, absent);
  if (std::find(choices.begin(), choices.end(), value) == choices.end()) {
    fail(name + " " + value + ": expected one of " + comma_separated(choices));
  }
  return value;
}

void Arguments::exclude(const std::string& first, const std::string& second) const {
  if (has(first) && has(second)) fail(first + " and " + second + " exclude each other; give only one");
}

void Arguments::exactly_one(const std::string& first, const std::string& second) const {
  exclude(first, second);
  if (!has(first) && !has(second)) fail("give " + first + " or " + second);
}

void Arguments::required(const std::string& name) const {
  if (!has(name)) fail(name + " is missing");
}

void Arguments::needs(const std::string& name, const std::string& other) const {
  if (has(name) && !has(other)) fail(name + " needs " + other + "; add it, or leave out " + name);
}

void Arguments::fail(const std::string& message) const {
  throw Error(Status::usage, command_ + ": " + message + " (phonograd-phone " + command_ + " --help)");
}

}  // namespace phonograd::phone
