/* Android's newlocale refuses bits of other categories than its own; musl's LC_ALL_MASK has them all. */
#pragma once
#include_next <locale.h>

#undef LC_ALL_MASK
#define LC_ALL_MASK 0x1fbf
