"""Hatchling's build hook: a wheel carries the native engine compiled, for its host and for phones, and the docs.

PHONOGRAD_WHEEL chooses the wheel: `x86_64` or `aarch64`, for Linux; `macos_arm64` or `macos_x86_64`; or `any`, without
an engine for the host. Any machine builds each of them. If it is not set, the wheel is the one for this machine.
"""

import os
import platform
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# What check_host_library, check_arm64_library and check_macos_library hold the libraries to.
TAGS = {
    "x86_64": "py3-none-manylinux_2_17_x86_64",
    "aarch64": "py3-none-manylinux_2_17_aarch64",
    "macos_arm64": "py3-none-macosx_11_0_arm64",
    "macos_x86_64": "py3-none-macosx_11_0_x86_64",
    "any": "py3-none-any",
}


class NativeBuildHook(BuildHookInterface):  # type: ignore[type-arg]  # any builder's configuration
    """Adds device_runtime/native/lib/ to the wheel, and names the platform. An editable install builds on first use."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile and check what the wheel carries, before the files are collected."""
        if version == "editable":
            return
        kind = os.environ.get("PHONOGRAD_WHEEL") or _kind_of_this_machine()
        if kind not in TAGS:
            raise ValueError(f"PHONOGRAD_WHEEL={kind}: expected {', '.join(TAGS)}")
        sys.path.insert(0, self.root)
        import phonograd  # noqa: PLC0415  # importable only now

        phonograd.__path__.append(self.root)  # a source distribution has no links to the folders
        from phonograd.device_runtime.native_build import (  # noqa: PLC0415  # importable only now
            PACKAGED_PHONE_BINARY,
            build_arm64_library,
            build_host_library,
            build_macos_library,
            build_phone_binary,
        )
        from phonograd.device_runtime.native_build.checks import check_host_library  # noqa: PLC0415
        from phonograd.device_runtime.native_build.targets import LIBRARY, MACOS_LIBRARY, NATIVE  # noqa: PLC0415

        self.app.display_info("compiling the native engine")
        folder = PACKAGED_PHONE_BINARY.parent
        built = {PACKAGED_PHONE_BINARY: build_phone_binary().path}
        if kind == "x86_64":
            built[folder / LIBRARY] = build_host_library().path
            check_host_library(built[folder / LIBRARY])
        elif kind == "aarch64":
            built[folder / LIBRARY] = build_arm64_library().path
        elif kind != "any":
            built[folder / MACOS_LIBRARY] = build_macos_library[kind.removeprefix("macos_")]().path
        for packaged, path in built.items():
            place = Path("device_runtime/native") / packaged.relative_to(NATIVE)
            build_data["force_include"][str(path)] = str(place)
        for page in Path(self.root, "docs").glob("*.md"):  # for `phonograd docs`
            build_data["force_include"][str(page)] = f"phonograd/docs/{page.name}"
        build_data["pure_python"] = kind == "any"
        build_data["tag"] = TAGS[kind]


def _kind_of_this_machine() -> str:
    kind = {"Linux": "", "Darwin": "macos_"}.get(platform.system(), "no_") + platform.machine()
    return kind if kind in TAGS else "any"
