#include "phone/stopping.h"

#include <csignal>

namespace phonograd::phone {
namespace {

volatile std::sig_atomic_t received = 0;

extern "C" void note_signal(int number) {
  if (received == 0) received = number;
}

}  // namespace

void note_stop_signals() {
  struct sigaction action{};
  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
}

int stop_signal() {
  return received;
}

}  // namespace phonograd::phone
