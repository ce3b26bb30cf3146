// What the C ABI's functions are wrapped in: no exception leaves `guarded`, and the last message is kept by thread.
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
      last_error() = "memory: the system has no more; close other apps";
      return static_cast<int>(Status::out_of_memory);
    } catch (const std::exception& error) {
      last_error() = std::string("unexpected: ") + error.what() + "; please report this";
    }
  } catch (...) {  // the message itself found no memory
    return static_cast<int>(Status::out_of_memory);
  }
  return static_cast<int>(Status::bug);
}

}  // namespace phonograd::border
