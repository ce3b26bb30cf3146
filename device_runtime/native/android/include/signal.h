/*
 * Android's struct sigaction on 64 bits: the flags come first. Its signal set has 8 bytes, musl's 128, of which Android
 * uses the first 8; so the mask is the last field here, and what Android has behind it (sa_restorer) is in its zeros.
 */
#pragma once
#define sigaction phonograd_sigaction_of_musl
#include_next <signal.h>
#undef sigaction
#undef sa_handler
#undef sa_sigaction

struct sigaction {
  int sa_flags;
  union {
    void (*sa_handler)(int);
    void (*sa_sigaction)(int, siginfo_t*, void*);
  };
  sigset_t sa_mask;
};

#ifdef __cplusplus
extern "C"
#endif
    int sigaction(int number, const struct sigaction* action, struct sigaction* before);
