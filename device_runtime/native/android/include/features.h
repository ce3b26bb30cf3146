/* musl's, and the name by which libc++ knows Android's C library. */
#include_next <features.h>
#define __BIONIC__ 1
