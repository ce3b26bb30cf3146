// Rests between training steps: a phone that works only part of the time stays cooler.
#pragma once

#include <functional>

namespace phonograd {

// Seconds to rest after `busy` seconds of work, so that work takes the share `duty` of the wall time; duty in (0, 1].
double rest_after(double busy, double duty);

// Sleep for `seconds`, or until `stop` returns true; it is asked every 50 ms, and never if it is empty. Returns the
// seconds slept.
double rest(double seconds, const std::function<bool()>& stop);

}  // namespace phonograd
