"""`phonograd-phone pull` and `pg_pull`: byte for byte the reference's model, or what Python's face refuses."""

import ctypes
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phonograd.device_runtime.base.errors import PhonogradError, StorageError, UpdateError, UsageError, WeightsError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.engine.c_abi import find_library
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, TensorSpec, load_tensors, save_tensors
from phonograd.device_runtime.native_build import build_host_command
from phonograd.device_runtime.update.links import LinkCodec
from tests.device_runtime.test_links import HOSTILE, ROWS, Place
from tests.reference.codecs import link_metadata, mask, rotated_parts, write_result
from tests.support.phone_command import Outcome, outcome_of

# Blocks of every kind: several, a short one at the end, one of 64; rows that do not divide a block, and rows of one.
SHAPES = {"table": (300, 37), "gates": (1, 40, 6), "bias": (1, 70), "vector": (9000,), "column": (130, 1), "one": (1,)}
SPECS = {name: TensorSpec(name, "F32", shape) for name, shape in SHAPES.items()}
OTHER_ROWS = {**ROWS, "table.values": np.full((3, 8), 0.25, np.float32)}
Made = tuple[Path, str]


@pytest.fixture(scope="session")
def command() -> Path:
    return build_host_command().path


def pulled(command: Path, fetched: Path, sha256: str, base: Path | None, out: Path, **settings: Any) -> Outcome:
    given = () if base is None else ("--base", base)
    line = (command, "pull", fetched, "--sha256", sha256, "--out", out, *given)
    return outcome_of([*map(str, line)], **settings)


def row_count(spec: TensorSpec) -> int:
    return spec.elements // spec.row


def rows_parts(random: np.random.Generator, spec: TensorSpec, model: Mapping[str, Array]) -> dict[str, Array]:
    """rows-f32: the whole tensor, or some of its rows, or none."""
    kind = random.integers(3)
    values = model[spec.name].reshape(row_count(spec), spec.row) + random.normal(size=(row_count(spec), spec.row))
    if kind == 0:
        return {spec.name: values.astype("<f4").reshape(spec.shape)}
    share = random.random() if kind == 1 else 0.0
    rows = np.flatnonzero(random.random(row_count(spec)) < share).astype("<u4")
    return {f"{spec.name}.rows": rows, f"{spec.name}.values": values.astype("<f4")[rows]}


def top_parts(random: np.random.Generator, spec: TensorSpec, seed: int) -> dict[str, Array]:
    """top-rows: all rows, some of them, or no part; at any bits, with blocks of scale 0 among the others."""
    share = random.choice([0.0, 0.1, 0.7, 1.0])
    rows = np.flatnonzero(random.random(row_count(spec)) < share)
    if not len(rows):
        return {}
    values = random.normal(scale=random.choice([1e-30, 1e-3, 1e3]), size=len(rows) * spec.row).astype(np.float32)
    values[: 4096 * random.integers(2)] = 0
    rotated = rotated_parts(spec.name, values, int(random.choice([1, 2, 4])), seed, nearest=bool(random.integers(2)))
    return {**mask(spec.name, rows, row_count(spec)), **rotated}


@dataclass
class Chain:
    """A base model and a file of links from it, at random. `trained`: the tensors that are not frozen."""

    folder: Path
    random: np.random.Generator
    trained: list[str]

    def make(self, links: int) -> Made:
        """The file, and the hash of the model that Python has made of it, at `expected`."""
        frozen = ",".join(name for name in SHAPES if name not in self.trained)
        metadata = {"frozen": frozen} if frozen else {}
        model = {name: self.random.normal(size=shape).astype("<f4") for name, shape in SHAPES.items()}
        for values in model.values():
            values.reshape(-1)[::3] = -0.0
        save_tensors(self.base, model, metadata)
        joined, before, sha256 = b"", self.base, sha256_of_file(self.base)
        for number in range(1, links + 1):
            link, after = self.folder / f"link-{number}", self.folder / f"model-{number}"
            kind: LinkCodec = "rows-f32" if self.random.integers(2) else "top-rows"
            result = {"round": str(number), "name": 'é "\\\n\x7f', **metadata}
            told = link_metadata(sha256, number, kind, "", result)
            parts: dict[str, Array] = {}
            for name in self.trained:
                spec = SPECS[name]
                rows = kind == "rows-f32"
                parts |= (
                    rows_parts(self.random, spec, model) if rows else top_parts(self.random, spec, int(told["seed"]))
                )
            save_tensors(link, parts, told, checksum=True)
            sha256 = write_result(before, link, after, result).sha256
            save_tensors(link, parts, {**told, "result_sha256": sha256}, checksum=True)
            joined += link.read_bytes()
            before = after
        fetched = self.folder / "fetched"
        fetched.write_bytes(joined)
        (self.folder / "expected").write_bytes(before.read_bytes())
        return fetched, sha256

    @property
    def base(self) -> Path:
        return self.folder / "base"

    @property
    def out(self) -> Path:
        return self.folder / "out"

    @property
    def expected(self) -> bytes:
        return (self.folder / "expected").read_bytes()


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    return Chain(tmp_path, np.random.default_rng(7), list(SHAPES))


@pytest.mark.parametrize("seed", range(24))
def test_links_lead_to_pythons_model(command: Path, tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    trained = [name for name in SHAPES if seed % 3 or random.random() < 0.6] or ["table"]
    chain = Chain(tmp_path, random, trained)
    links = 1 + seed % 4
    fetched, sha256 = chain.make(links)
    found = pulled(command, fetched, sha256, chain.base, chain.out)
    assert found.code == 0, found.err
    assert chain.out.read_bytes() == chain.expected
    said = found.only("pulled")
    assert (said["path"], said["nbytes"]) == (str(chain.out), chain.out.stat().st_size)
    assert (said["sha256"], said["links"]) == (sha256, links)


def test_the_model_is_replaced_in_place(command: Path, chain: Chain) -> None:
    fetched, sha256 = chain.make(2)
    assert pulled(command, fetched, sha256, chain.base, chain.base).code == 0
    assert chain.base.read_bytes() == chain.expected
    written = chain.base.stat()
    again = pulled(command, fetched, sha256, chain.base, chain.base)
    assert (again.code, again.only("pulled")["links"]) == (0, 0)
    assert (chain.base.stat().st_ino, chain.base.stat().st_mtime_ns) == (written.st_ino, written.st_mtime_ns)
    assert pulled(command, fetched, sha256, chain.base, chain.out).code == 0
    assert chain.out.read_bytes() == chain.expected


@pytest.mark.parametrize("base", [True, False])
def test_a_whole_model_is_checked_and_copied(command: Path, chain: Chain, base: bool) -> None:
    _, sha256 = chain.make(1)
    whole = chain.folder / "expected"
    found = pulled(command, whole, sha256, chain.base if base else None, chain.out)
    assert (found.code, found.only("pulled")["links"]) == (0, 0)
    assert chain.out.read_bytes() == chain.expected
    wrong = pulled(command, whole, "0" * 64, None, chain.out)
    assert (wrong.code, wrong.events) == (WeightsError.exit_code, [])
    said = f"{whole}: the model 000000000000… expected, found {sha256[:12]}…; fetch the whole model\n"
    assert wrong.err == f"phonograd-phone: {said}"
    whole.write_bytes(whole.read_bytes()[:-1])
    cut = pulled(command, whole, sha256, None, chain.out)
    assert (cut.code, "the file is truncated" in cut.err) == (WeightsError.exit_code, True)


def rejected(command: Path, place: Place, fetched: Path, sha256: str, said: str = "") -> None:
    """The command refuses with the code of Python's error, in one line with `said`, and changes nothing."""
    before = {found.name: found.read_bytes() for found in place.folder.iterdir()}
    with pytest.raises((UpdateError, WeightsError)) as error:  # the one of links, the other of the model they make
        place.apply(fetched, sha256)
    found = pulled(command, fetched, sha256, place.base, place.out)
    assert (found.code, found.events) == (error.value.exit_code, []), (found.err, error.value)
    assert (found.err.count("\n"), found.err.startswith("phonograd-phone: ")) == (1, True)
    assert re.search(said, found.err), found.err
    assert {path.name: path.read_bytes() for path in place.folder.iterdir()} == before


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    base = {"table": np.arange(800, dtype=np.float32).reshape(100, 8), "bias": np.full(10, -0.0, np.float32)}
    save_tensors(made.base, base)
    made.out.write_bytes(b"as it was")
    return made


def top_rows(place: Place, changes: Mapping[str, Array | None], **metadata: str) -> Made:
    """A link of rows 3 to 90 of `table`, with parts that are changed or left out (None)."""
    values = np.linspace(-1, 1, 3 * 8).astype(np.float32)
    parts = {**mask("table", np.array([3, 4, 90]), 100), **rotated_parts("table", values, 4, 5, nearest=True)}
    path, sha256 = place.link(parts, kind="top-rows", **metadata)
    with TensorFile(path) as file:
        told = file.metadata
    kept = {name: part for name, part in {**parts, **changes}.items() if part is not None}
    save_tensors(path, kept, told, checksum=True)
    return path, sha256


def mask_of(*rows: int) -> Array:
    bits = np.zeros(104, bool)
    bits[list(rows)] = True
    return np.packbits(bits, bitorder="little")


TOP_ROWS: Mapping[str, tuple[Mapping[str, Array | None], str]] = {
    "no rows": ({"table.rows": mask_of()}, "table.rows: expected bits of 1 to 100 rows"),
    "a row beyond the table": ({"table.rows": mask_of(3, 4, 100)}, "table.rows: expected bits of 1 to 100 rows"),
    "more rows than levels": ({"table.rows": mask_of(*range(40))}, r"table.levels U8\[64\] .* expected, found"),
    "a short mask": ({"table.rows": mask_of(3)[:-1]}, r"table.rows U8\[13\] expected, found"),
    "a mask of another type": ({"table.rows": mask_of(3).astype("<u2")}, r"table.rows U8\[13\] expected, found"),
    "no mask": ({"table.rows": None}, r"table.levels U8\[128\] or .* expected, found"),
    "a mask alone": ({"table.scales": None, "table.levels": None}, "table.rows is not part of the model"),
    "no scales": ({"table.scales": None}, r"table.scales F32\[1\] expected, not found"),
    "no levels": ({"table.levels": None}, "table.* is not part of the model"),
    "more scales": ({"table.scales": np.ones(2, "<f4")}, r"table.scales F32\[1\] expected, found"),
    "a scale of NaN": ({"table.scales": np.array([np.nan], "<f4")}, "finite scales of at least 0 expected, found nan"),
    "an infinite scale": ({"table.scales": np.array([np.inf], "<f4")}, "finite scales of at least 0 expected"),
    "a scale below 0": ({"table.scales": np.array([-1], "<f4")}, "finite scales of at least 0 expected, found -1"),
    "weights that overflow": ({"table.scales": np.array([3e38], "<f4")}, "table: element .* expected a finite number"),
    "levels of no size": ({"table.levels": np.zeros(33, "u1")}, r"table.levels U8\[8\] or .* expected, found"),
    "levels of another type": ({"table.levels": np.zeros(32, "i1")}, r"table.levels U8\[8\] or .* expected, found"),
    "the whole tensor": ({"table": np.zeros((100, 8), "<f4")}, "table is not part of the model"),
    "other levels": ({"table.levels": np.zeros(16, "u1")}, "links to model"),
}


@pytest.mark.parametrize("kind", [*HOSTILE, *TOP_ROWS])
def test_hostile_links_are_refused(command: Path, place: Place, kind: str) -> None:
    if kind in HOSTILE:
        make, said = HOSTILE[kind]
        rejected(command, place, *make(place), said)
    else:
        changes, said = TOP_ROWS[kind]
        rejected(command, place, *top_rows(place, changes), said)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seed": ""}, "metadata seed: a whole number of at most 18 digits expected, found ''"),
        ({"seed": "1" * 19}, "metadata seed: a whole number of at most 18 digits"),
        ({"round": "-1"}, "metadata round: a whole number of at most 18 digits expected, found '-1'"),
        ({"tokens": "0"}, "0 tokens trained, expected at least 1"),
        ({"tokens": "1\n"}, r"metadata tokens: .* found '1\\n'"),
        ({"steps": "2"}, "metadata steps: 1 expected, or nothing"),
        ({"version": "2"}, "update version 3 expected, found '2'"),
        ({"base_sha256": None}, "metadata base_sha256 expected, not found"),
        ({"codec": None}, "metadata codec expected, not found"),
        ({"codec": "delta-f16"}, "a link expected, .* update of codec delta-f16"),
        ({"result.frozen": "table"}, "table.* is not part of the model"),
        ({"result.frozen": "table,bias"}, "frozen: names of some of its tensors expected, found all of them"),
        ({"result.frozen": "table,"}, "found '', which it has not"),
        ({"result.frozen": "more"}, "found 'more', which it has not"),
        ({"result.frozen": ""}, "found '', which it has not"),
        ({"result.round": "2"}, "links to model"),
    ],
)
def test_metadata_are_refused(command: Path, place: Place, changes: dict[str, str | None], said: str) -> None:
    rejected(command, place, *place.link(ROWS, **changes), said)


def test_an_update_file_of_another_kind_is_taken_for_a_whole_model(command: Path, place: Place) -> None:
    path, sha256 = place.link(ROWS, format="phonograd-prediction")
    found = pulled(command, path, sha256, place.base, place.out)
    assert (found.code, f"{path}: the model {sha256[:12]}… expected, found" in found.err) == (6, True), found.err


def test_a_sum_equal_to_the_weight_keeps_its_bits(command: Path, place: Place) -> None:
    """Of 60 blocks of 64 weights, all -0.0, in 1 bit, some decode to 0.0 here and there."""
    names, random = [f"vector-{number}" for number in range(60)], np.random.default_rng(1)
    save_tensors(place.base, {name: np.full(64, -0.0, np.float32) for name in names})
    parts: dict[str, Array] = {}
    for name in names:
        parts |= rotated_parts(name, random.normal(size=64).astype(np.float32), 1, 1)
    path, sha256 = place.link(parts, kind="top-rows")
    assert pulled(command, path, sha256, place.base, place.out).code == 0
    found = np.concatenate(list(load_tensors(place.out).values()))
    assert 0 < np.count_nonzero(found == 0) < 600
    assert np.signbit(found[found == 0]).all()


def test_a_file_cut_anywhere_is_refused(command: Path, place: Place) -> None:
    first, _ = place.link(ROWS)
    second, sha256 = place.link(OTHER_ROWS, place.folder / "model-1")
    one, two = first.read_bytes(), second.read_bytes()
    fetched = place.folder / "fetched"
    fetched.write_bytes(one + two)
    place.apply(fetched, sha256)
    assert pulled(command, fetched, sha256, place.base, place.folder / "native").code == 0
    assert (place.folder / "native").read_bytes() == place.out.read_bytes()
    ends = [start + end for start, link in ((0, one), (len(one), two)) for end in (0, 8, 8 + link[0] + 256 * link[1])]
    near = {end + by for end in [*ends, len(one) + len(two)] for by in (-9, -8, -1, 0, 1, 7)}
    cuts = sorted(near | set(range(0, len(one) + len(two), 131)))
    for cut in (cut for cut in cuts if 0 <= cut < len(one) + len(two)):
        fetched.write_bytes((one + two)[:cut])
        rejected(command, place, fetched, sha256)


@pytest.mark.parametrize("length", [0, 1, 2**20 + 1, 2**32, 2**63, 2**64 - 8, 2**64 - 1])
def test_hostile_lengths_are_refused(command: Path, place: Place, length: int) -> None:
    first, _ = place.link(ROWS)
    second, sha256 = place.link(OTHER_ROWS, place.folder / "model-1")
    lengthened = length.to_bytes(8, "little") + second.read_bytes()[8:]
    for content in (first.read_bytes() + lengthened, lengthened):
        first.write_bytes(content)
        rejected(command, place, first, sha256)


def test_hashes_that_are_none_are_shown_quoted(command: Path, place: Place) -> None:
    path, sha256 = place.link(ROWS, base_sha256="\x1b[2J\n" * 9)
    found = pulled(command, path, sha256, place.base, place.out)
    assert (found.code, r"found '\x1b[2J\n\x1b[2J\n\x1b['; fetch" in found.err) == (UpdateError.exit_code, True), (
        found.err
    )


def test_links_after_the_last_one_are_refused(command: Path, place: Place) -> None:
    first, sha256 = place.link(ROWS)
    second, _ = place.link(OTHER_ROWS, place.folder / "model-1")
    first.write_bytes(first.read_bytes() + second.read_bytes())
    rejected(command, place, first, sha256)
    first.write_bytes(first.read_bytes() + place.base.read_bytes())
    rejected(command, place, first, sha256)


def test_what_the_user_gives_is_checked(command: Path, place: Place) -> None:
    fetched, sha256 = place.link(ROWS)
    cases: list[tuple[Outcome, type[PhonogradError], str]] = [
        (pulled(command, fetched, sha256, None, place.out), UsageError, "give it with --base, or fetch the whole"),
        (pulled(command, fetched, "ABC", place.base, place.out), UsageError, "--sha256 'ABC': 64 lower-case"),
        (pulled(command, place.folder / "none", sha256, place.base, place.out), UpdateError, "none: cannot be opened"),
        (pulled(command, place.folder / "none", sha256, None, place.out), WeightsError, "none: cannot be opened"),
        (pulled(command, fetched, sha256, place.folder / "none", place.out), WeightsError, "none: cannot be opened"),
        (
            pulled(command, fetched, sha256, place.base, Path("/proc/none/out")),
            StorageError,
            "no folder /proc/none, and it can't be made",
        ),
        (pulled(command, fetched, sha256, place.base, place.folder), StorageError, "cannot write: it is a folder"),
        (pulled(command, fetched, sha256, place.base, fetched), UsageError, f"would replace {fetched}, an input"),
    ]
    for found, error, said in cases:
        assert (found.code, said in found.err) == (error.exit_code, True), found
    assert place.out.read_bytes() == b"as it was"
    save_tensors(place.base, {"table": np.zeros(3, "i4")}, {})
    path, sha256 = place.link({"table.rows": np.empty(0, "<u4"), "table.values": np.empty((0, 3), "<f4")})
    found = pulled(command, path, sha256, place.base, place.out)
    assert (found.code, "a model's F32 tensors expected" in found.err) == (WeightsError.exit_code, True)


def large(folder: Path, megabytes: int) -> tuple[Path, Path, str]:
    """A model, a link that changes all of it, and what that leads to."""
    base, link, model = folder / "base", folder / "link", folder / "model"
    tensor = np.zeros((megabytes << 8, 1 << 10), np.float32)
    save_tensors(base, {"table": tensor})
    told = link_metadata(sha256_of_file(base), 1, "rows-f32", "", {})
    save_tensors(link, {"table": tensor + 1}, told, checksum=True)
    sha256 = write_result(base, link, model, {}).sha256
    save_tensors(link, {"table": tensor + 1}, {**told, "result_sha256": sha256}, checksum=True)
    return base, link, sha256


def test_memory_is_a_piece_of_the_model(command: Path, tmp_path: Path) -> None:
    base, link, sha256 = large(tmp_path, 32)
    found = pulled(command, link, sha256, base, tmp_path / "out")
    assert sha256_of_file(tmp_path / "out") == sha256
    assert found.only("pulled")["peak_rss_bytes"] < 12 << 20


def killed(line: list[str], number: signal.Signals, after: float) -> int:
    with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        time.sleep(after)
        process.send_signal(number)
    return process.returncode


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_pull_leaves_the_old_or_the_new_model(command: Path, tmp_path: Path, number: signal.Signals) -> None:
    base, link, sha256 = large(tmp_path, 8)
    before = sha256_of_file(base)
    line = [str(command), "pull", str(link), "--base", str(base), "--sha256", sha256, "--out", str(base)]
    killed_it = {-signal.SIGKILL, 128 + signal.SIGTERM, -signal.SIGTERM}
    for after in np.linspace(0, 0.15, 12):
        code = killed(line, number, after)
        assert code == 0 or code in killed_it
        assert sha256_of_file(base) in {before, sha256}
        if number == signal.SIGTERM:
            assert not list(tmp_path.glob(".*.partial"))
    others = [
        tmp_path / name for name in (".base.01234567.partially", ".base.download.partial", ".link.01234567.partial")
    ]
    for other in others:
        other.touch()
    assert outcome_of(line).code == 0
    assert sha256_of_file(base) == sha256
    assert sorted(tmp_path.glob(".*")) == sorted(others)


class Options(ctypes.Structure):
    """pg_pull_options."""

    _fields_ = (
        ("size", c_size_t),
        *((name, c_char_p) for name in ("fetched", "base", "sha256", "out")),
        ("stop", c_void_p),
        ("context", c_void_p),
    )


class Pulled(ctypes.Structure):
    """pg_pulled."""

    _fields_ = (("size", c_size_t), ("bytes", c_int64), ("links", c_int64), ("finished", c_int32))


STOP = ctypes.CFUNCTYPE(c_int32, c_void_p)


@pytest.fixture(scope="module")
def library() -> Iterator[ctypes.CDLL]:
    library = ctypes.CDLL(str(find_library()))
    library.pg_pull.argtypes, library.pg_pull.restype = (POINTER(Options), POINTER(Pulled)), c_int
    library.pg_last_error.restype = c_char_p
    yield library


def given(fetched: Path, sha256: str, base: Path, out: Path, stop: Callable[[int | None], int] | None = None) -> Any:
    function = ctypes.cast(STOP(stop), c_void_p) if stop else None
    paths = (str(fetched).encode(), str(base).encode(), sha256.encode(), str(out).encode())
    return Options(ctypes.sizeof(Options), *paths, function, 7)


def test_an_app_pulls_by_the_c_abi(library: ctypes.CDLL, chain: Chain) -> None:
    fetched, sha256 = chain.make(3)
    told = Pulled(size=ctypes.sizeof(Pulled))
    assert library.pg_pull(given(fetched, sha256, chain.base, chain.out), told) == 0
    assert chain.out.read_bytes() == chain.expected
    assert (told.bytes, told.links, told.finished) == (len(chain.expected), 3, 1)
    asked = Options.from_buffer_copy(given(fetched, "0" * 64, chain.base, chain.out))
    assert library.pg_pull(asked, told) == UpdateError.exit_code
    assert "links to model 000000000000… expected" in library.pg_last_error().decode()
    assert (told.bytes, told.links, told.finished) == (0, 0, 0)


def test_an_app_stops_a_pull_after_any_stage(library: ctypes.CDLL, chain: Chain) -> None:
    fetched, sha256 = chain.make(2)
    chain.out.write_bytes(b"as it was")
    names = {path.name for path in chain.folder.iterdir()}
    told, stages = Pulled(size=ctypes.sizeof(Pulled), finished=1), 5
    for stage in range(1, stages + 2):
        asked: list[int | None] = []

        def stop(context: int | None, asked: list[int | None] = asked, stage: int = stage) -> int:
            asked.append(context)
            return len(asked) == stage

        callback = STOP(stop)
        options = given(fetched, sha256, chain.base, chain.out)
        options.stop = ctypes.cast(callback, c_void_p)
        assert library.pg_pull(options, told) == 0
        assert (told.finished, len(asked), set(asked)) == (stage > stages, min(stage, stages), {7})
        assert chain.out.read_bytes() == (chain.expected if stage > stages else b"as it was")
        assert {path.name for path in chain.folder.iterdir()} == names


def test_a_caller_that_gives_no_structs_is_refused(library: ctypes.CDLL, place: Place) -> None:
    fetched, sha256 = place.link(ROWS)
    told, options = Pulled(size=ctypes.sizeof(Pulled)), given(fetched, sha256, place.base, place.out)
    without = given(fetched, sha256, place.base, place.out)
    without.fetched = None
    short = given(fetched, sha256, place.base, place.out)
    short.size -= 8
    for one, other, said in (
        (None, told, b"pg_pull_options: NULL"),
        (options, None, b"pg_pulled: NULL"),
        (without, told, b"fetched, sha256 or out: NULL"),
        (short, told, b"pg_pull_options: `size`"),
        (options, Pulled(size=8), b"pg_pulled: `size`"),
    ):
        assert library.pg_pull(one, other) == UsageError.exit_code
        assert said in library.pg_last_error()
    assert place.out.read_bytes() == b"as it was"
