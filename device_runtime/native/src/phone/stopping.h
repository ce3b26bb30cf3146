// SIGTERM and SIGINT, which end a command at its next safe place.
#pragma once

namespace phonograd::phone {

constexpr int kSignalled = 128;  // plus the signal's number: a shell's exit code for a process that a signal ended

// From now on these signals are noted and end nothing by themselves.
void note_stop_signals();

// The first one received; 0: none.
int stop_signal();

}  // namespace phonograd::phone
