"""A pytest plugin, for `make sanitize`: what the tests compile is compiled by $CLANG under $PHONOGRAD_SANITIZE.

A library that Python loads needs the sanitizer's runtime in Python itself (LD_PRELOAD). The thread sanitizer would
report every package's threads there, so under it only programs are built for it: the phone's command is all of the
engine.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from phonograd.device_runtime import native_build
from phonograd.device_runtime.native_build import compiler

SANITIZERS = os.environ["PHONOGRAD_SANITIZE"]
os.environ["PHONOGRAD_ZIG"] = str(compiler.find_zig())
CLANG = Path(__file__).with_name("sanitizing_clang.sh")


def _sanitize(build: Callable[..., Any]) -> Callable[..., Any]:
    # The compiler's version is part of the key in the cache.
    version = f"{SANITIZERS} {CLANG.read_text()}"

    def by_clang(*arguments: Any, **settings: Any) -> Any:
        with patch.multiple(compiler, find_zig=lambda: CLANG, ZIG_VERSION=version):
            return build(*arguments, **settings)

    return by_clang


for name in ("build_host_command", "build_program", *(["build_host_library"] if "thread" not in SANITIZERS else [])):
    setattr(native_build, name, _sanitize(getattr(native_build, name)))
# What tests start is not Python: it looks for leaks, and has the runtime by itself.
for name in ("LD_PRELOAD", "ASAN_OPTIONS"):
    os.environ.pop(name, None)
os.environ["UBSAN_OPTIONS"] = "print_stacktrace=1"
os.environ["TSAN_OPTIONS"] = "halt_on_error=1"
