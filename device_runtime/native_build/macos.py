"""The check of the library for macOS, which is built where it can't be run: will dyld load it, on macOS 11 too?"""

from pathlib import Path

from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.native_build.checks import C_PREFIX, JAVA_PREFIX, SharedLibrary, require
from phonograd.device_runtime.native_build.macho import (
    CPU_TYPES,
    MH_DYLIB,
    PLATFORM_MACOS,
    VM_PROT_EXECUTE,
    VM_PROT_WRITE,
    read_macho,
)

MINIMUM = (11, 0)  # of macOS: the first on arm64, and what the wheels' tags promise
SYSTEM = "/usr/lib/libSystem.B.dylib"
# C++'s operators new and delete, which any library of the process may define, and what the linker adds.
OPERATORS = ("_Zna", "_Znw", "_Zda", "_Zdl")
OF_THE_LINKER = frozenset({"__dso_handle", "_mh_dylib_header"})
# What the engine and its C++ library call, on either CPU. The compiler knows the names of the newest macOS: look up
# whether macOS 11 has one before it is added here.
_IMPORTS = """
_DefaultRuneLocale _Unwind_DeleteException _Unwind_GetIP _Unwind_GetLanguageSpecificData _Unwind_GetRegionStart
_Unwind_RaiseException _Unwind_Resume _Unwind_SetGR _Unwind_SetIP __bzero __cxa_atexit __error __stderrp
_tlv_bootstrap abort access aligned_alloc bzero calloc ceil ceilf clock_gettime close closedir dlopen dlsym
dyld_stub_binder exp expf fclose fcntl fgets flock floor floorf fopen fputc free frexp fstat fstat$INODE64 fsync
ftruncate fwrite getpid getpriority getrusage ldexp log log1p logf lseek madvise malloc memchr memcmp memcpy memmove
memset memset_pattern16 mkdir mmap munmap nanosleep nearbyint nearbyintf newlocale open opendir opendir$INODE64 pread
pthread_cond_broadcast pthread_cond_destroy pthread_cond_signal pthread_cond_timedwait pthread_cond_wait
pthread_create pthread_detach pthread_getspecific pthread_join pthread_key_create pthread_mach_thread_np
pthread_mutex_destroy pthread_mutex_init pthread_mutex_lock pthread_mutex_trylock pthread_mutex_unlock
pthread_mutexattr_destroy pthread_mutexattr_init pthread_mutexattr_settype pthread_self pthread_setspecific pwrite
read readdir readdir$INODE64 realloc realpath$DARWIN_EXTSN rename rint sched_yield setpriority sigaction signal
snprintf stat stat$INODE64 strcmp strerror_r strlen strnlen strtod strtof strtol strtold strtoll strtoul strtoull
swprintf sysconf sysctlbyname trunc unlink uselocale vfprintf wcslen wcstod wcstof wcstol wcstold wcstoll wcstoul
wcstoull wmemchr wmemcmp write
"""
IMPORTS = frozenset(_IMPORTS.split())


def check_macos_library(path: Path, cpu: str) -> SharedLibrary:
    """Check that macOS 11 or later can load a library into Python on this CPU. Raises BuildError that names the fault.

    Expected: a library of that CPU and that minimum, signed (arm64 Macs run nothing else), no library but libSystem, of
    which it needs nothing newer, no exports but the C ABI and native methods of Java, no memory both writable and
    executable; and nothing bound to the system's C++ library, which is another one than the library's own.
    """
    file = read_macho(path)
    require(path, file.type == MH_DYLIB, "a dynamic library (MH_DYLIB)", f"file type {file.type}")
    require(path, file.cpu == CPU_TYPES[cpu], f"a library for {cpu}", f"CPU type {file.cpu:#x}")
    known = (file.platform, file.minimum) == (PLATFORM_MACOS, MINIMUM)
    require(path, known, "macOS 11.0 as the minimum", "platform {}, {}.{}".format(file.platform, *file.minimum))
    odd = sorted({*file.libraries, *file.imports.values()} - {SYSTEM})
    require(path, not odd, "no library but libSystem", ", ".join(odd) or "names of no library")
    new = sorted(file.imports.keys() - IMPORTS)
    require(path, not new, "functions of macOS 11, as native_build/macos.py lists them", ", ".join(new))
    strangers = [name for name in file.exports if not name.startswith((C_PREFIX, JAVA_PREFIX, *OPERATORS))]
    strangers = sorted({*strangers} - OF_THE_LINKER)
    ours = bool(file.exports) and not strangers
    require(path, ours, f"exported names {C_PREFIX}*, {JAVA_PREFIX}*", ", ".join(strangers[:3]) or "none")
    bound = [name for name in file.weak_binds if "phonograd" not in name and not name.startswith(OPERATORS)]
    require(path, not bound, "no name that the system's C++ library has too", ", ".join(bound))
    both = VM_PROT_WRITE | VM_PROT_EXECUTE
    mixed = any(one & both == both for one in file.protections)
    require(path, not mixed, "no memory both writable and executable", "a segment that is both")
    require(path, file.signed or cpu != "arm64", "a signature of its pages", "none, or of other bytes")
    return SharedLibrary(str(path), file.bytes, sha256_of_file(path), "", file.exports)
