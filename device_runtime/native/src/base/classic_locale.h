// Converting numbers to and from text, whatever the process's locale.
#pragma once

#include <locale.h>

namespace phonograd {

// Sets the calling thread's locale to "C" while it exists. strtod and snprintf follow that locale, and a host process
// may have set one with a decimal comma. (<charconv> ignores locales, but its tables add 300 KB to the phone's binary.)
class ClassicLocale {
 public:
  ClassicLocale() : before_(uselocale(classic())) {}
  ~ClassicLocale() { uselocale(before_); }
  ClassicLocale(const ClassicLocale&) = delete;
  ClassicLocale& operator=(const ClassicLocale&) = delete;

 private:
  static locale_t classic() {
    static const locale_t locale = newlocale(LC_ALL_MASK, "C", nullptr);
    return locale;
  }

  locale_t before_;
};

}  // namespace phonograd
