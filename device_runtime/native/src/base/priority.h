// How the CPU is shared with other programs.
#pragma once

namespace phonograd {

constexpr int kLeastPriority = 19;  // the highest nice value

// The nice value of the calling thread.
int priority();

// Raise the nice value of the calling thread, and of threads that it starts later, to `nice` (0 to 19). A thread whose
// nice value is higher keeps it, as only a privileged process may lower one. Throws Error(unsupported) if the kernel
// refuses.
void lower_priority(int nice);

}  // namespace phonograd
