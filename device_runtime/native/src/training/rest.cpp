#include "training/rest.h"

#include <algorithm>
#include <chrono>

#include "base/sleep.h"

namespace phonograd {
namespace {

using Seconds = std::chrono::duration<double>;

// Often enough that a stop seems immediate, seldom enough to cost no energy.
constexpr double kPause = 0.05;

}  // namespace

double rest_after(double busy, double duty) {
  return busy * (1 / duty - 1);
}

double rest(double seconds, const std::function<bool()>& stop) {
  const auto began = std::chrono::steady_clock::now();
  double slept = 0;
  while (slept < seconds && !(stop && stop())) {
    sleep_for(std::min(kPause, seconds - slept));
    slept = Seconds(std::chrono::steady_clock::now() - began).count();
  }
  return slept;
}

}  // namespace phonograd
