"""The AAR as org.phonograd:phonograd:VERSION in a Maven repository, a folder that an app's Gradle build reads."""

import hashlib
import re
import string
import tempfile
from dataclasses import dataclass
from pathlib import Path

from phonograd import __version__
from phonograd.android_harness.app.aar import DEMO_ONLY, Aar, build_aar
from phonograd.android_harness.app.contents import (
    ANNOTATIONS,
    JAVA,
    LICENSE_NAME,
    copy_archive,
    java_files,
    license_file,
    tree,
    write_archive,
)
from phonograd.android_harness.app.toolchain import Tools, run_tool
from phonograd.device_runtime.base.files import storage_errors

POM = Path(__file__).with_name("pom.xml")
GROUP, ARTIFACT = "org.phonograd", "phonograd"
CHECKSUMS = ("md5", "sha1", "sha256", "sha512")
# It has no time of its last change, so that equal releases give equal bytes.
METADATA = """<?xml version="1.0" encoding="UTF-8"?>
<metadata>
  <groupId>{group}</groupId>
  <artifactId>{artifact}</artifactId>
  <versioning>
    <latest>{latest}</latest>
    <release>{latest}</release>
    <versions>
{versions}
    </versions>
  </versioning>
</metadata>
"""


@dataclass(frozen=True)
class MavenRelease(Aar):
    """An AAR in a repository. coordinates: what an app's build names."""

    coordinates: str


def release_to_maven(repository: Path, tools: Tools, binary: Path | None = None) -> MavenRelease:
    """Write this version to the repository, a folder made if it is missing: AAR, POM, sources, Javadoc and checksums.

    Other versions there stay, and a release of this one is replaced, file by file. The same tools, sources and binary
    give the same bytes.
    Raises BuildError, MissingExtraError without ziglang, StorageError; before anything is written, except the last.
    """
    place = repository.joinpath(*GROUP.split("."), ARTIFACT)
    name = f"{ARTIFACT}-{__version__}"
    release = place / __version__
    with tempfile.TemporaryDirectory(prefix="phonograd-maven-") as folder:
        work = Path(folder)
        built = build_aar(work / f"{name}.aar", tools, binary)
        _write_sources(work / f"{name}-sources.jar", work)
        _write_javadoc(work / f"{name}-javadoc.jar", work, tools)
        pom = work / f"{name}.pom"
        pom.write_text(string.Template(POM.read_text("utf-8")).substitute(version=__version__), "utf-8")
        for file in sorted(work.glob(f"{name}*")):
            _publish(file, release)
        metadata = work / "maven-metadata.xml"
        metadata.write_text(_metadata(place), "utf-8")
        _publish(metadata, place)
    coordinates = f"{GROUP}:{ARTIFACT}:{__version__}"
    return MavenRelease(str(release / f"{name}.aar"), built.bytes, built.sha256, built.binary_sha256, coordinates)


def _write_sources(out: Path, work: Path) -> None:
    files = {path.relative_to(JAVA).as_posix(): path for path in java_files(without=DEMO_ONLY)}
    write_archive(out, {LICENSE_NAME: license_file(work)} | files)


def _write_javadoc(out: Path, work: Path, tools: Tools) -> None:
    pages = work / "javadoc"
    same = ("-notimestamp", "-locale", "en", "-encoding", "UTF-8", "-docencoding", "UTF-8", "-charset", "UTF-8")
    paths = ("-classpath", tools.android_jar, "-sourcepath", ANNOTATIONS)
    files = java_files(without=DEMO_ONLY)
    run_tool(tools.javadoc, "-quiet", "--release", "8", *same, *paths, "-d", pages, *files)
    write_archive(out, {LICENSE_NAME: license_file(work)} | tree(pages))


def _metadata(place: Path) -> str:
    versions = sorted({path.parent.name for path in place.glob("*/*.pom")}, key=_in_order)
    lines = "\n".join(f"      <version>{version}</version>" for version in versions)
    return METADATA.format(group=GROUP, artifact=ARTIFACT, latest=versions[-1], versions=lines)


def _in_order(version: str) -> tuple[list[int], str]:
    return [int(number) for number in re.findall(r"\d+", version)], version


def _publish(file: Path, folder: Path) -> None:
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    copy_archive(file, folder / file.name)
    content = file.read_bytes()
    for kind in CHECKSUMS:
        checksum = file.with_name(f"{file.name}.{kind}")
        checksum.write_text(hashlib.new(kind, content).hexdigest(), "ascii")
        copy_archive(checksum, folder / checksum.name)
