/* musl's numbers are the kernel's; the function behind `errno` is Android's. */
#pragma once
#include_next <errno.h>

#ifdef __cplusplus
extern "C"
#endif
    int* __errno(void);
#undef errno
#define errno (*__errno())
