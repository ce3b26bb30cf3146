// Numbers as text, the same in every process.
#pragma once

#include <locale.h>

namespace phonograd {

// strtod and snprintf follow the calling thread's locale, and in a host process that may write a decimal comma: while
// one of these stands, this thread's is "C". (<charconv> has no locale, but its tables cost the phone's binary 300 KB.)
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
