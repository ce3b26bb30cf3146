#include "base/mapping.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>
#include <system_error>
#include <utility>

namespace phonograd {
namespace {

// The address range of a mapping. A signal handler reads it, so it needs no lock. A free slot's end is 0.
struct Slot {
  std::atomic<uintptr_t> begin{0}, end{0};
  std::atomic<bool> lost{false};
};

constexpr int kSlots = 256;  // an engine takes two; further mappings are not protected
Slot slots[kSlots];
std::mutex registering;
uintptr_t page_bytes = 0;
struct sigaction before;

// Replaces a page that can't be read by zeros; false if the address is in none of these mappings.
bool replace_page(uintptr_t address) {
  for (Slot& slot : slots) {
    if (address < slot.begin.load() || address >= slot.end.load()) continue;
    slot.lost.store(true);
    void* page = reinterpret_cast<void*>(address / page_bytes * page_bytes);
    return mmap(page, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == page;
  }
  return false;
}

void on_bus_error(int number, siginfo_t* info, void* context) {
  const int saved = errno;
#if defined(__APPLE__)
  const bool unreadable = true;  // arm64's macOS gives BUS_ADRALN as the code of all of them
#else
  const bool unreadable = info->si_code == BUS_ADRERR;
#endif
  const bool ours = unreadable && replace_page(reinterpret_cast<uintptr_t>(info->si_addr));
  errno = saved;
  if (ours) return;
  if ((before.sa_flags & SA_SIGINFO) != 0) {
    before.sa_sigaction(number, info, context);
  } else if (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN) {
    signal(number, SIG_DFL);  // the instruction runs again and kills the process
  } else {
    before.sa_handler(number);
  }
}

// Call with the lock held. Installs once per process; a handler that the host installs later has to call this one.
void install_once() {
  if (page_bytes != 0) return;
  page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  struct sigaction action{};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, &before);
}

int take_slot(uintptr_t begin, size_t bytes) {
  const std::lock_guard<std::mutex> lock(registering);
  install_once();
  for (int i = 0; i < kSlots; ++i) {
    Slot& slot = slots[i];
    if (slot.end.load() != 0) continue;
    slot.lost.store(false);
    slot.begin.store(begin);
    slot.end.store(begin + bytes);
    return i;
  }
  return -1;
}

void give_slot(int slot) {
  if (slot < 0) return;
  const std::lock_guard<std::mutex> lock(registering);
  slots[slot].end.store(0);
}

}  // namespace

Mapping::Mapping(int descriptor, size_t bytes, bool writable) : bytes_(bytes) {
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  void* map = mmap(nullptr, bytes, protection, MAP_PRIVATE, descriptor, 0);
  if (map == MAP_FAILED) throw std::system_error(errno, std::generic_category());
  data_ = static_cast<unsigned char*>(map);
  slot_ = take_slot(reinterpret_cast<uintptr_t>(map), bytes);
}

Mapping::~Mapping() {
  give_slot(slot_);
  if (data_ != nullptr) munmap(data_, bytes_);
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      slot_(std::exchange(other.slot_, -1)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(slot_, other.slot_);
  return *this;
}

bool Mapping::lost() const {
  return slot_ >= 0 && slots[slot_].lost.load();
}

}  // namespace phonograd
