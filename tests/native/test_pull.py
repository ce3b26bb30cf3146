"""Pulls, by the library and by `phonograd-phone pull`: byte for byte the reference's model, or nothing changes."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phonograd.device_runtime.base.errors import PhonogradError, StorageError, UpdateError, UsageError, WeightsError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.engine.c_abi import load_library
from phonograd.device_runtime.engine.header import new
from phonograd.device_runtime.formats.tensor_file import Array, load_tensors, save_tensors
from phonograd.device_runtime.native_build import build_host_command
from phonograd.device_runtime.update.links import LinkCodec, Pulled, pull_links
from tests.native.links import SHAPES, Chain, Folder, Made
from tests.reference.codecs import mask, read_parts, rotated_parts, write_link
from tests.support.phone_command import Outcome, outcome_of


@pytest.fixture(scope="session")
def command() -> Path:
    return build_host_command().path


def pull(command: Path, fetched: Path, sha256: str, base: Path | None, out: Path) -> Outcome:
    given = () if base is None else ("--base", base)
    return outcome_of([*map(str, (command, "pull", fetched, "--sha256", sha256, "--out", out, *given))])


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    return Chain(tmp_path, np.random.default_rng(7), list(SHAPES))


@pytest.mark.parametrize("seed", range(12))
def test_links_lead_to_the_references_model(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    chain = Chain(tmp_path, random, [name for name in SHAPES if seed % 3 or random.random() < 0.6] or ["table"])
    links = 1 + seed % 4
    fetched, sha256 = chain.make(links)
    assert pull_links(fetched, chain.base, chain.out, sha256) == Pulled(len(chain.expected), links)
    assert chain.out.read_bytes() == chain.expected


def test_the_model_is_replaced_in_place(command: Path, chain: Chain) -> None:
    fetched, sha256 = chain.make(2)
    told = pull(command, fetched, sha256, chain.base, chain.base).only("pulled")
    assert chain.base.read_bytes() == chain.expected
    assert (told["path"], told["nbytes"]) == (str(chain.base), len(chain.expected))
    assert (told["sha256"], told["links"]) == (sha256, 2)
    written = chain.base.stat()
    assert pull(command, fetched, sha256, chain.base, chain.base).only("pulled")["links"] == 0
    assert (chain.base.stat().st_ino, chain.base.stat().st_mtime_ns) == (written.st_ino, written.st_mtime_ns)
    assert pull(command, fetched, sha256, chain.base, chain.out).code == 0
    assert chain.out.read_bytes() == chain.expected


@pytest.mark.parametrize("base", [True, False])
def test_a_whole_model_is_checked_and_copied(command: Path, chain: Chain, base: bool) -> None:
    _, sha256 = chain.make(1)
    whole = chain.folder / "expected"
    assert pull(command, whole, sha256, chain.base if base else None, chain.out).only("pulled")["links"] == 0
    assert chain.out.read_bytes() == chain.expected
    wrong = pull(command, whole, "0" * 64, None, chain.out)
    assert (wrong.code, wrong.events) == (WeightsError.exit_code, [])
    said = f"{whole}: the model 000000000000… expected, found {sha256[:12]}…; fetch the whole model\n"
    assert wrong.err == f"phonograd-phone: {said}"
    whole.write_bytes(whole.read_bytes()[:-1])
    cut = pull(command, whole, sha256, None, chain.out)
    assert (cut.code, "the file is truncated" in cut.err) == (WeightsError.exit_code, True)


BASE = {"table": np.arange(800, dtype=np.float32).reshape(100, 8), "bias": np.full(10, -0.0, np.float32)}
ROWS = {
    "table.rows": np.array([3, 4, 90], "<u4"),
    "table.values": np.full((3, 8), 0.5, np.float32),
    "bias.rows": np.empty(0, "<u4"),
    "bias.values": np.empty((0, 10), np.float32),
}
OTHER_ROWS = {**ROWS, "table.values": np.full((3, 8), 0.25, np.float32)}


def top_rows() -> dict[str, Array]:
    """Parts of rows 3 to 90 of `table`."""
    values = np.linspace(-1, 1, 3 * 8).astype(np.float32)
    return {**mask("table", np.array([3, 4, 90]), 100), **rotated_parts("table", values, 4, 5, nearest=True)}


@dataclass
class Place(Folder):
    """A folder with links from the base, one by one."""

    links: int = 0

    def link(
        self,
        parts: Mapping[str, Array],
        base: Path | None = None,
        kind: LinkCodec = "rows-f32",
        **changes: str | None,
    ) -> Made:
        """A link from `base` whose metadata are changed, and the hash of the model that the right one leads to."""
        self.links += 1
        path, model = self.folder / f"link-{self.links}", self.folder / f"model-{self.links}"
        sha256 = write_link(path, model, base or self.base, parts, kind, 1, {"round": "1"}).sha256
        metadata = {key: value for key, value in {**read_parts(path)[1], **changes}.items() if value is not None}
        save_tensors(path, parts, metadata, checksum=True)
        return path, sha256

    def two_links(self) -> tuple[bytes, bytes, str]:
        """Two links that follow each other."""
        first, _ = self.link(ROWS)
        second, sha256 = self.link(OTHER_ROWS, self.folder / f"model-{self.links}")
        return first.read_bytes(), second.read_bytes(), sha256

    def expect_refusal(self, fetched: Path, sha256: str, said: str = "") -> None:
        """Expect a refusal in one line that changes nothing."""
        before = {found.name: found.read_bytes() for found in self.folder.iterdir()}
        with pytest.raises((UpdateError, WeightsError)) as error:  # the one of links, the other of the model they make
            pull_links(fetched, self.base, self.out, sha256)
        assert re.search(said, str(error.value)), str(error.value)
        assert "\n" not in str(error.value)
        assert {found.name: found.read_bytes() for found in self.folder.iterdir()} == before


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    save_tensors(made.base, BASE)
    made.out.write_bytes(b"as it was")
    return made


Make = Callable[[Place], Made]


def change_metadata(**changes: str | None) -> Make:
    return lambda place: place.link(ROWS, **changes)


def send_parts(changes: Mapping[str, Array | None], kind: LinkCodec = "rows-f32") -> Make:
    """Send parts that are changed, or left out (None), on the way."""

    def make(place: Place) -> Made:
        right = ROWS if kind == "rows-f32" else top_rows()
        path, sha256 = place.link(right, kind=kind)
        parts = {name: part for name, part in {**right, **changes}.items() if part is not None}
        save_tensors(path, parts, read_parts(path)[1], checksum=True)
        return path, sha256

    return make


def top(**changes: Array | None) -> Make:
    """Parts of `table` in a link of top rows."""
    return send_parts({f"table.{part}": values for part, values in changes.items()}, "top-rows")


def raw(change: Callable[[bytes], bytes]) -> Make:
    def make(place: Place) -> Made:
        path, sha256 = place.link(ROWS)
        path.write_bytes(change(path.read_bytes()))
        return path, sha256

    return make


def follow(by: Callable[[Place], Path]) -> Make:
    """Follow the link by one that does not lead on."""

    def make(place: Place) -> Made:
        path, sha256 = place.link(ROWS)
        path.write_bytes(path.read_bytes() + by(place).read_bytes())
        return path, sha256

    return make


def scale(value: float) -> Array:
    return np.array([value], "<f4")


# What all updates may have wrong is in tests/native/test_updates_hostile.py.
HOSTILE: tuple[tuple[Make, str], ...] = (
    (
        send_parts({"table.values": OTHER_ROWS["table.values"]}),
        "links to model .* expected, found .*; fetch the whole model",
    ),
    (raw(lambda data: data[:-1]), "truncated"),
    (raw(lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]), "damaged: checksum"),
    (raw(lambda data: b""), "0 bytes"),
    (raw(lambda data: data + b"\xff" * 100), "header of"),
    (follow(lambda place: place.link(ROWS)[0]), "a link from model"),
    (follow(lambda place: place.link(OTHER_ROWS, place.folder / "model-1")[0]), "links to model"),
    (follow(lambda place: place.base), ""),
    (lambda place: (place.link(ROWS)[0], "2" * 64), "links to model 222"),
    (change_metadata(base_sha256="1" * 64), "a link from model .* found 111"),
    (change_metadata(base_sha256="\x1b[2J\n" * 9), r"found '\\x1b\[2J\\n\\x1b\[2J\\n\\x1b\['; fetch"),
    (change_metadata(result_sha256=None), "a link expected, with metadata result_sha256"),
    (change_metadata(codec="full-f32"), "codec rows-f32 or top-rows, found"),
    (change_metadata(format="phonograd-prediction"), "the model .* expected, found"),  # it is taken for a whole model
    (change_metadata(**{"result.frozen": "table"}), "table.* is not part of the model"),
    (
        change_metadata(**{"result.frozen": "table,bias"}),
        "frozen: names of some of its tensors expected, found all of them",
    ),
    (change_metadata(**{"result.frozen": "table,"}), "found '', which it has not"),
    (change_metadata(**{"result.frozen": "more"}), "found 'more', which it has not"),
    (change_metadata(**{"result.frozen": ""}), "found '', which it has not"),
    (change_metadata(**{"result.round": "2"}), "links to model"),
    (send_parts({"table.rows": np.array([3, 4, 100], "<u4")}), "rising row numbers below 100"),
    (send_parts({"more": np.zeros(3, np.float32)}), "more is not part of the model"),
    (send_parts({"table.values": np.full((3, 8), np.nan, np.float32)}), "table: element 24 is nan"),
    (top(rows=np.zeros(13, "u1")), "table.rows: expected bits of 1 to 100 rows"),
    (top(scales=None, levels=None), "table.rows is not part of the model"),
    (top(scales=scale(-1)), "finite scales of at least 0 expected, found -1"),
    (top(scales=scale(3e38)), "table: element .* expected a finite number"),
    (send_parts({"table": np.zeros((100, 8), "<f4")}, "top-rows"), "table is not part of the model"),
    (top(levels=np.zeros(16, "u1")), "links to model"),
)


@pytest.mark.parametrize(("make", "said"), HOSTILE)
def test_hostile_links_are_refused(place: Place, make: Make, said: str) -> None:
    place.expect_refusal(*make(place), said)


def test_a_file_cut_anywhere_is_refused(place: Place) -> None:
    one, two, sha256 = place.two_links()
    fetched = place.folder / "fetched"
    fetched.write_bytes(one + two)
    assert pull_links(fetched, place.base, place.folder / "whole", sha256).links == 2
    ends = [start + end for start, link in ((0, one), (len(one), two)) for end in (0, 8, 8 + link[0] + 256 * link[1])]
    near = {end + by for end in [*ends, len(one) + len(two)] for by in (-9, -8, -1, 0, 1, 7)}
    cuts = sorted(near | set(range(0, len(one) + len(two), 131)))
    for cut in (cut for cut in cuts if 0 <= cut < len(one) + len(two)):
        fetched.write_bytes((one + two)[:cut])
        place.expect_refusal(fetched, sha256)


@pytest.mark.parametrize("length", [0, 1, 2**20 + 1, 2**32, 2**63, 2**64 - 8, 2**64 - 1])
def test_hostile_lengths_are_refused(place: Place, length: int) -> None:
    first, second, sha256 = place.two_links()
    lengthened = length.to_bytes(8, "little") + second[8:]
    for content in (first + lengthened, lengthened):
        (place.folder / "fetched").write_bytes(content)
        place.expect_refusal(place.folder / "fetched", sha256)


def test_a_sum_equal_to_the_weight_keeps_its_bits(place: Place) -> None:
    """Some of 60 blocks of 64 weights, all -0.0, in 1 bit, decode to 0.0 here and there."""
    names, random = [f"vector-{number}" for number in range(60)], np.random.default_rng(1)
    save_tensors(place.base, {name: np.full(64, -0.0, np.float32) for name in names})
    parts: dict[str, Array] = {}
    for name in names:
        parts |= rotated_parts(name, random.normal(size=64).astype(np.float32), 1, 1)
    fetched, sha256 = place.link(parts, kind="top-rows")
    pull_links(fetched, place.base, place.out, sha256)
    found = np.concatenate(list(load_tensors(place.out).values()))
    assert 0 < np.count_nonzero(found == 0) < 600
    assert np.signbit(found[found == 0]).all()


def test_the_command_checks_what_the_user_gives(command: Path, place: Place) -> None:
    fetched, sha256 = place.link(ROWS)
    none, base, out = place.folder / "none", place.base, place.out
    cases: list[tuple[tuple[Path, str, Path | None, Path], type[PhonogradError], str]] = [
        ((fetched, sha256, None, out), UsageError, "give it with --base, or fetch the whole"),
        ((fetched, "ABC", base, out), UsageError, "--sha256 'ABC': 64 lower-case"),
        ((fetched, "2" * 64, base, out), UpdateError, "links to model 222"),
        ((none, sha256, base, out), UpdateError, "none: cannot be opened"),
        ((none, sha256, None, out), WeightsError, "none: cannot be opened"),
        ((fetched, sha256, none, out), WeightsError, "none: cannot be opened"),
        ((fetched, sha256, base, Path("/proc/none/out")), StorageError, "no folder /proc/none, and it can't be made"),
        ((fetched, sha256, base, place.folder), StorageError, "cannot write: it is a folder"),
        ((fetched, sha256, base, fetched), UsageError, f"would replace {fetched}, an input"),
    ]
    for given, error, said in cases:
        found = pull(command, *given)
        assert (found.code, found.events, said in found.err) == (error.exit_code, [], True), found
        assert (found.err.count("\n"), found.err.startswith("phonograd-phone: ")) == (1, True)
    assert place.out.read_bytes() == b"as it was"
    save_tensors(place.base, {"table": np.zeros(3, "i4")}, {})
    fetched, sha256 = place.link({"table.rows": np.empty(0, "<u4"), "table.values": np.empty((0, 3), "<f4")})
    place.expect_refusal(fetched, sha256, "a model's F32 tensors expected")


def large(folder: Path, megabytes: int) -> tuple[Path, Path, str]:
    """A model, a link that changes all of it, and what that leads to."""
    base, link = folder / "base", folder / "link"
    tensor = np.zeros((megabytes << 8, 1 << 10), np.float32)
    save_tensors(base, {"table": tensor})
    return base, link, write_link(link, folder / "model", base, {"table": tensor + 1}, "rows-f32", 1, {}).sha256


def test_memory_is_a_piece_of_the_model(command: Path, tmp_path: Path) -> None:
    base, link, sha256 = large(tmp_path, 32)
    found = pull(command, link, sha256, base, tmp_path / "out")
    assert sha256_of_file(tmp_path / "out") == sha256
    assert found.only("pulled")["peak_rss_bytes"] < 12 << 20


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_pull_leaves_the_old_or_the_new_model(command: Path, tmp_path: Path, number: signal.Signals) -> None:
    base, link, sha256 = large(tmp_path, 8)
    before = sha256_of_file(base)
    line = [str(command), "pull", str(link), "--base", str(base), "--sha256", sha256, "--out", str(base)]
    for after in np.linspace(0, 0.15, 12):
        with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            time.sleep(after)
            process.send_signal(number)
        assert process.returncode in {0, -signal.SIGKILL, 128 + signal.SIGTERM, -signal.SIGTERM}
        assert sha256_of_file(base) in {before, sha256}
        assert number == signal.SIGKILL or not list(tmp_path.glob(".*.partial"))
    names = (".base.01234567.partially", ".base.download.partial", ".link.01234567.partial")
    others = [tmp_path / name for name in names]
    for other in others:
        other.touch()
    assert outcome_of(line).code == 0
    assert sha256_of_file(base) == sha256
    assert sorted(tmp_path.glob(".*")) == sorted(others)


def options_of(place: Chain | Place, pulls: Path, sha256: str, **fields: object) -> Any:
    paths = {"fetched": pulls, "base": place.base, "out": place.out}
    given: dict[str, object] = {name: os.fsencode(path) for name, path in paths.items()}
    return new("pg_pull_options", **{**given, "sha256": sha256.encode(), **fields})


def test_an_app_stops_a_pull_after_any_stage(chain: Chain) -> None:
    fetched, sha256 = chain.make(2)
    chain.out.write_bytes(b"as it was")
    names = {path.name for path in chain.folder.iterdir()}
    facts, stages = new("pg_pulled", finished=1), 5
    for stage in range(1, stages + 2):
        asked: list[int | None] = []

        def stop(context: int | None, asked: list[int | None] = asked, stage: int = stage) -> int:
            asked.append(context)
            return len(asked) == stage

        options = options_of(chain, fetched, sha256, context=7)
        options.stop = type(options.stop)(stop)
        load_library().call("pg_pull", options, facts)
        assert (facts.finished, len(asked), set(asked)) == (stage > stages, min(stage, stages), {7})
        assert chain.out.read_bytes() == (chain.expected if stage > stages else b"as it was")
        assert {path.name for path in chain.folder.iterdir()} == names
    with pytest.raises(UpdateError):
        load_library().call("pg_pull", options_of(chain, fetched, "0" * 64), facts)
    assert (facts.bytes, facts.links, facts.finished) == (0, 0, 0)


def test_a_caller_that_gives_no_structs_is_refused(place: Place) -> None:
    fetched, sha256 = place.link(ROWS)
    good, facts = options_of(place, fetched, sha256), new("pg_pulled")
    short, small = options_of(place, fetched, sha256), new("pg_pulled")
    short.size, small.size = short.size - 8, 8
    for options, told, said in (
        (good, None, "pg_pulled: NULL"),
        (options_of(place, fetched, sha256, fetched=None), facts, "fetched, sha256 or out: NULL"),
        (short, facts, "pg_pull_options: `size`"),
        (good, small, "pg_pulled: `size`"),
    ):
        with pytest.raises(UsageError, match=said):
            load_library().call("pg_pull", options, told)
    assert place.out.read_bytes() == b"as it was"
