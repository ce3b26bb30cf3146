/* Android numbers sysconf's names otherwise than musl; those that are not here must not be used. */
#pragma once
#include_next <unistd.h>

#undef _SC_PAGESIZE
#undef _SC_PAGE_SIZE
#undef _SC_NPROCESSORS_CONF
#undef _SC_NPROCESSORS_ONLN
#undef _SC_PHYS_PAGES
#define _SC_PAGESIZE 0x0027
#define _SC_PAGE_SIZE 0x0028
#define _SC_NPROCESSORS_CONF 0x0060
#define _SC_NPROCESSORS_ONLN 0x0061
#define _SC_PHYS_PAGES 0x0062
