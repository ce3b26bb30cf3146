// SIGTERM and SIGINT as a request to end after the step that is running.
#pragma once

namespace phonograd::phone {

// From now on the two signals are noted instead of ending the process. The whole process's; call it once.
void note_stop_signals();

// The number of the first signal that was noted, or 0.
int stop_signal();

}  // namespace phonograd::phone
