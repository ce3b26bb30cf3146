// phonograd-phone: the phone's part of a round as one static binary. README.md lists its events and exit codes.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>

#include "base/error.h"
#include "formats/utf8.h"
#include "phone/commands.h"
#include "phonograd.h"

namespace phonograd::phone {
namespace {

std::string help(const std::vector<Command>& commands) {
  std::string out = "usage: phonograd-phone COMMAND [ARGUMENTS]\n\nTrain a keyboard's language model on the phone.\n\n";
  for (const Command& command : commands) {
    const std::string& name = command.syntax.command;
    out += "  " + name + std::string(10 - name.size(), ' ') + command.syntax.summary + "\n";
  }
  return out + "\nphonograd-phone COMMAND --help shows a command's options; phonograd-phone --version the version.\n";
}

bool asks_help(const std::string& word) {
  return word == "--help" || word == "-h";
}

void show(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
}

// The engine names settings in backticks; those that the command has options for are shown as these.
std::string with_options(std::string message, const Syntax& syntax) {
  for (const Option& option : syntax.options) {
    std::string setting = option.name.substr(2);
    std::replace(setting.begin(), setting.end(), '-', '_');
    const std::string quoted = "`" + setting + "`";
    const size_t at = message.find(quoted);
    if (at != std::string::npos) message.replace(at, quoted.size(), option.name);
  }
  return message;
}

int dispatch(const std::vector<std::string>& words) {
  const std::vector<Command> commands = {train_command(),    eval_command(),  predict_command(),
                                         quantize_command(), pull_command(),  mask_command(),
                                         identity_command(), bench_command(), info_command()};
  if (words.empty()) throw Error(Status::usage, "give a command (phonograd-phone --help lists them)");
  if (asks_help(words[0])) {
    show(help(commands));
    return 0;
  }
  if (words[0] == "--version") {
    show("phonograd-phone " PG_VERSION "\n");
    return 0;
  }
  std::vector<std::string> names;
  for (const Command& command : commands) {
    if (command.syntax.command != words[0]) {
      names.push_back(command.syntax.command);
      continue;
    }
    const std::vector<std::string> rest(words.begin() + 1, words.end());
    if (std::any_of(rest.begin(), rest.end(), asks_help)) {
      show(command.syntax.help());
      return 0;
    }
    const Arguments arguments(command.syntax, rest);
    try {
      return command.run(arguments);
    } catch (const Error& error) {
      throw Error(error.status(), with_options(error.what(), command.syntax));
    }
  }
  const std::string meant = nearest_name(words[0], names);
  throw Error(Status::usage, "no command " + words[0] + (meant.empty() ? "" : "; did you mean " + meant + "?") +
                                 " (phonograd-phone --help)");
}

constexpr const char* kOutOfMemory = "phonograd-phone: out of memory; close other apps or use a smaller model\n";

// std::terminate's handler, for an exception that found no memory or must not propagate: the usual message and code.
[[noreturn]] void on_terminate() {
  try {
    if (const std::exception_ptr error = std::current_exception()) std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    std::fputs(kOutOfMemory, stderr);
    std::_Exit(static_cast<int>(Status::out_of_memory));
  } catch (...) {
  }
  std::abort();
}

int run(int count, char** words) {
  std::set_terminate(on_terminate);
  // So that a file size limit is an error like a full disk, for stdout too, and does not kill the process.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    return dispatch(std::vector<std::string>(words + (count > 0 ? 1 : 0), words + count));
  } catch (const Error& error) {
    std::string line = error.what();
    std::replace(line.begin(), line.end(), '\n', ' ');  // a file's name may have one
    std::fprintf(stderr, "phonograd-phone: %s\n", visible(line).c_str());
    return static_cast<int>(error.status());
  } catch (const std::bad_alloc&) {
    std::fputs(kOutOfMemory, stderr);
    return static_cast<int>(Status::out_of_memory);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "phonograd-phone: a bug: %s; please report it\n", visible(error.what()).c_str());
  }
  return static_cast<int>(Status::bug);
}

}  // namespace
}  // namespace phonograd::phone

int main(int count, char** words) {
  return phonograd::phone::run(count, words);
}
