"""Hatchling's build hook: a wheel carries the native engine compiled, for this host and for phones."""

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# What check_host_library holds the library to.
TAG = "py3-none-manylinux_2_17_x86_64"


class NativeBuildHook(BuildHookInterface):  # type: ignore[type-arg]  # any builder's configuration
    """Adds device_runtime/native/lib/ to the wheel, and names the platform. An editable install builds on first use."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile and check both, before the files are collected."""
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        import phonograd  # noqa: PLC0415  # importable only now

        phonograd.__path__.append(self.root)  # a source distribution has no links to the folders
        from phonograd.device_runtime.native_build import (  # noqa: PLC0415  # importable only now
            NATIVE,
            PACKAGED_LIBRARY,
            PACKAGED_PHONE_BINARY,
            build_host_library,
            build_phone_binary,
            check_host_library,
        )

        self.app.display_info("compiling the native engine")
        library, phone = build_host_library().path, build_phone_binary().path
        check_host_library(library)
        for built, packaged in ((library, PACKAGED_LIBRARY), (phone, PACKAGED_PHONE_BINARY)):
            place = Path("device_runtime/native") / packaged.relative_to(NATIVE)
            build_data["force_include"][str(built)] = str(place)
        build_data["pure_python"] = False
        build_data["tag"] = TAG
