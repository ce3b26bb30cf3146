#include "phone/stop.h"

#include <csignal>

namespace phonograd::phone {
namespace {

volatile std::sig_atomic_t noted = 0;

extern "C" void note(int number) {
  if (noted == 0) noted = number;
}

}  // namespace

void note_stop_signals() {
  struct sigaction action{};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
}

int stop_signal() {
  return noted;
}

}  // namespace phonograd::phone
