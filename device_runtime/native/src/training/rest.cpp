#include "training/rest.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace phonograd {
namespace {

using Seconds = std::chrono::duration<double>;

// Often enough that a stop seems immediate, seldom enough to cost no energy.
constexpr Seconds kPause(0.05);

}  // namespace

double rest_after(double busy, double duty) {
  return busy * (1 / duty - 1);
}

double rest(double seconds, const std::function<bool()>& stop) {
  const auto began = std::chrono::steady_clock::now();
  Seconds slept(0);
  while (slept.count() < seconds && !(stop && stop())) {
    std::this_thread::sleep_for(std::min(kPause, Seconds(seconds) - slept));
    slept = std::chrono::steady_clock::now() - began;
  }
  return slept.count();
}

}  // namespace phonograd
