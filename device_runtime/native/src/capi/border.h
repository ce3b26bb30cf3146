// The wrapper of the C ABI's functions: no exception leaves `guarded`, and each thread keeps its last error message.
#pragma once

#include <cstddef>
#include <cstring>
#include <exception>
#include <new>
#include <string>

#include "base/error.h"

namespace phonograd::border {

constexpr size_t kMessageBytes = 4096;

// The calling thread's last message. A plain array: a string's destructor must be registered with the C library, which
// ends the process if it has no memory for that.
inline char* last_error() {
  static thread_local char message[kMessageBytes];
  return message;
}

// Needs no memory. A message that is too long is cut between two characters of its UTF-8.
inline void set_last_error(const char* before, const char* text = "", const char* after = "") {
  char* message = last_error();
  size_t size = 0;
  for (const char* part : {before, text, after}) {
    size_t taken = strnlen(part, kMessageBytes - 1 - size);
    while (taken > 0 && (part[taken] & 0xC0) == 0x80) --taken;
    std::memcpy(message + size, part, taken);
    size += taken;
  }
  message[size] = '\0';
}

// Throws Error(usage).
inline void require(bool good, const std::string& message) {
  if (!good) throw Error(Status::usage, message);
}

template <typename Work>
int run_guarded(Work work) noexcept {
  try {
    work();
    return static_cast<int>(Status::ok);
  } catch (const Error& error) {
    set_last_error(error.what());
    return static_cast<int>(error.status());
  } catch (const std::bad_alloc&) {
    set_last_error("out of memory; close other apps or use a smaller model");
    return static_cast<int>(Status::out_of_memory);
  } catch (const std::exception& error) {
    set_last_error("unexpected: ", error.what(), "; please report this");
  } catch (...) {
    set_last_error("unexpected; please report this");
  }
  return static_cast<int>(Status::bug);
}

}  // namespace phonograd::border
