// The wrapper of the C ABI's functions: no exception leaves `guarded`, and each thread keeps its last error message.
#pragma once

#include <exception>
#include <new>
#include <string>

#include "base/error.h"

namespace phonograd::border {

inline std::string& last_error() {
  static thread_local std::string message;
  return message;
}

// Throws Error(usage).
inline void require(bool good, const std::string& message) {
  if (!good) throw Error(Status::usage, message);
}

template <typename Work>
int guarded(Work work) noexcept {
  try {
    try {
      work();
      return static_cast<int>(Status::ok);
    } catch (const Error& error) {
      last_error() = error.what();
      return static_cast<int>(error.status());
    } catch (const std::bad_alloc&) {
      last_error() = "out of memory; close other apps";
      return static_cast<int>(Status::out_of_memory);
    } catch (const std::exception& error) {
      last_error() = std::string("unexpected: ") + error.what() + "; please report this";
    }
  } catch (...) {  // no memory for the message either
    return static_cast<int>(Status::out_of_memory);
  }
  return static_cast<int>(Status::bug);
}

}  // namespace phonograd::border
