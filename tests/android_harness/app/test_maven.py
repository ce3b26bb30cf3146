"""The Maven repository: its files, and Maven itself, which resolves the AAR from it and refuses a changed one."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

from phonograd import __version__
from phonograd.android_harness.app import Aar, MavenRelease, Tools, release_to_maven
from phonograd.android_harness.app.contents import JAVA, LICENSE_NAME

pytestmark = pytest.mark.apk

ROOT = Path(__file__).parents[3]
PLACE = Path("org/phonograd/phonograd")
NAME = f"phonograd-{__version__}"
FILES = [f"{NAME}{end}" for end in ("-javadoc.jar", "-sources.jar", ".aar", ".pom")]
DEBIAN = Path("/usr/share/maven-repo")  # maven and libmaven-dependency-plugin-java
DEPENDENCY_PLUGIN = DEBIAN / "org/apache/maven/plugins/maven-dependency-plugin"
# A range of versions is found in maven-metadata.xml.
APP = """
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>com.example</groupId> <artifactId>keyboard</artifactId> <version>1</version> <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.phonograd</groupId> <artifactId>phonograd</artifactId> <version>[{version},)</version>
      <type>aar</type>
    </dependency>
    {more}
  </dependencies>
  <repositories>
    <repository>
      <id>phonograd</id> <url>{repository}</url>
      <releases> <checksumPolicy>fail</checksumPolicy> </releases>
    </repository>
  </repositories>
</project>
"""
JAR = """
    <dependency>
      <groupId>org.phonograd</groupId> <artifactId>phonograd</artifactId> <version>{version}</version>
      <type>jar</type> <classifier>{classifier}</classifier>
    </dependency>
"""
# Maven's own plugins are Debian's, which has no checksums of them.
SETTINGS = """
<settings>
  <localRepository>{local}</localRepository>
  <mirrors>
    <mirror> <id>debian</id> <mirrorOf>central</mirrorOf> <url>{debian}</url> </mirror>
  </mirrors>
</settings>
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("repository") / "maven"


@pytest.fixture(scope="module", autouse=True)
def release(repository: Path, tools: Tools) -> MavenRelease:
    return release_to_maven(repository, tools)


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def resolve_with_maven(repository: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Maven copies the dependencies of an app to folder/target; it has no network."""
    folder.mkdir()
    jars = "".join(JAR.format(version=__version__, classifier=name) for name in ("sources", "javadoc"))
    (folder / "pom.xml").write_text(APP.format(version=__version__, more=jars, repository=repository.as_uri()))
    (folder / "settings.xml").write_text(SETTINGS.format(local=folder / "local", debian=DEBIAN.as_uri()))
    plugin = next(DEPENDENCY_PLUGIN.glob("*/*.jar")).parent.name
    goal = f"org.apache.maven.plugins:maven-dependency-plugin:{plugin}:copy-dependencies"
    line = ["mvn", "-B", "-q", "-o", "-Daether.offline.protocols=file", "-s", "settings.xml", goal]
    return subprocess.run([*line, "-DoutputDirectory=target"], cwd=folder, capture_output=True, text=True, check=False)


def test_its_files_and_their_checksums(repository: Path, release: MavenRelease, aar: Aar) -> None:
    found = files_of(repository)
    plain = [str(PLACE / __version__ / name) for name in FILES] + [str(PLACE / "maven-metadata.xml")]
    checksums = {f"{name}.{kind}": (name, kind) for name in plain for kind in ("md5", "sha1", "sha256", "sha512")}
    assert found.keys() == {*plain, *checksums}
    for checksum, (name, kind) in checksums.items():
        assert found[checksum].decode() == hashlib.new(kind, found[name]).hexdigest()
    assert release.coordinates == f"org.phonograd:phonograd:{__version__}"
    assert (release.path, release.bytes) == (str(repository / PLACE / __version__ / f"{NAME}.aar"), aar.bytes)
    assert release.sha256 == aar.sha256 == hashlib.sha256(Path(release.path).read_bytes()).hexdigest()


def test_the_pom(repository: Path) -> None:
    pom = ElementTree.parse(repository / PLACE / __version__ / f"{NAME}.pom")
    said = {tag: pom.findtext(f"{{*}}{tag}") for tag in ("groupId", "artifactId", "version", "packaging", "name")}
    assert list(said.values()) == ["org.phonograd", "phonograd", __version__, "aar", "phonograd"]
    assert pom.findtext("{*}description")
    licences = " AND ".join(name.text or "" for name in pom.findall("{*}licenses/{*}license/{*}name"))
    assert f'license = "{licences}"' in (ROOT / "pyproject.toml").read_text("utf-8")


def test_sources_and_javadoc(repository: Path) -> None:
    with zipfile.ZipFile(repository / PLACE / __version__ / f"{NAME}-sources.jar") as jar:
        sources = {str(path.relative_to(JAVA)): path.read_bytes() for path in JAVA.rglob("*.java")}
        del sources["org/phonograd/ScheduleReceiver.java"]
        sources[LICENSE_NAME] = (ROOT / "LICENSE").read_bytes()
        assert {name: jar.read(name) for name in jar.namelist()} == sources
    with zipfile.ZipFile(repository / PLACE / __version__ / f"{NAME}-javadoc.jar") as jar:
        assert jar.read(LICENSE_NAME) == sources[LICENSE_NAME]
        page = jar.read("org/phonograd/TrainingJob.html").decode()
        assert {file.date_time for file in jar.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    assert "in as many parts as Android allows" in page
    assert "@Nullable" in page
    assert "dc.created" not in page  # the day, which a test within one day does not see


def test_maven_resolves_it_offline(repository: Path, release: MavenRelease, tmp_path: Path) -> None:
    done = resolve_with_maven(repository, tmp_path / "app")
    assert done.returncode == 0, done.stdout
    folder = repository / PLACE / __version__
    got = {name: (folder / name).read_bytes() for name in FILES if not name.endswith(".pom")}
    assert files_of(tmp_path / "app/target") == got
    assert hashlib.sha256(got[f"{NAME}.aar"]).hexdigest() == release.sha256


def test_maven_refuses_a_changed_byte(repository: Path, tmp_path: Path) -> None:
    copy = tmp_path / "maven"
    shutil.copytree(repository, copy)
    path = copy / PLACE / __version__ / f"{NAME}.aar"
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    done = resolve_with_maven(copy, tmp_path / "app")
    assert done.returncode != 0
    assert re.search(r"Checksum validation failed, expected [0-9a-f]{40} but is ", done.stdout), done.stdout
    assert not (tmp_path / "app/target").exists()


def test_the_command_beside_earlier_versions(repository: Path, release: MavenRelease, tmp_path: Path) -> None:
    place = tmp_path / PLACE
    for version in ("0.0.9", "0.0.10"):
        (place / version).mkdir(parents=True)
        (place / version / f"phonograd-{version}.pom").write_text("earlier")
    (place / "notes").mkdir()
    line = ["python", "-m", "phonograd.android_harness.app", "--maven", tmp_path]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    said = json.loads(done.stdout)
    assert (said["coordinates"], said["sha256"]) == (release.coordinates, release.sha256)
    assert files_of(place / __version__) == files_of(repository / PLACE / __version__)  # equal sources, equal bytes
    metadata = ElementTree.parse(place / "maven-metadata.xml")
    assert [found.text for found in metadata.iter("version")] == ["0.0.9", "0.0.10", __version__]
    assert metadata.findtext("versioning/release") == __version__
    assert (place / "0.0.9/phonograd-0.0.9.pom").read_text() == "earlier"
    assert "jni/x86_64/libphonograd_phone.so" in done.stderr
    assert f'url = uri("{tmp_path}")' in done.stderr.splitlines()[-1]
    both = subprocess.run([*line, "--aar", os.devnull], capture_output=True, text=True, check=False)
    assert both.returncode == 2
    assert "--aar and --maven both given" in both.stderr
