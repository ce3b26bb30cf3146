"""The C++ readers of tensor files, manifests and JSON, and the C++ writer, held equal to Python's."""

import hashlib
import json
import os
import re
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phonograd.device_runtime.base.documents import document_of
from phonograd.device_runtime.base.errors import ArtifactsError
from phonograd.device_runtime.engine.c_abi import load_library
from phonograd.device_runtime.formats.manifest import (
    FILES,
    FileEntry,
    Manifest,
    StateTensor,
    TensorEntry,
    TrainingConfig,
    open_artifacts,
)
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import HEADER_CAP_BYTES, TensorFile, save_tensors
from tests.device_runtime.tensor_files import HOSTILE, TENSORS, write_raw
from tests.native.formats_tool import pad, refusal, tool
from tests.native.limits import files_of_at_most

BUG, TEXT, ARTIFACTS, WEIGHTS, STORAGE = 1, 3, 5, 6, 11
FILE_SIZE_LIMIT = 4096
METADATA = {"b": 'quote " back \\ tab \t', "aé": "😀 \x7f \x01 \n end", "": ""}

CPU_FEATURES = load_library().cpu_info()["features"]


def seen_by_python(path: Path) -> Any:
    with TensorFile(path) as file:
        # C++ lists tensors in the order of their data
        order = sorted(file.specs, key=lambda name: (file._offsets[name], file.specs[name].nbytes))
        tensors = [
            {
                "name": name,
                "dtype": file.specs[name].dtype,
                "shape": list(file.specs[name].shape),
                "elements": file.specs[name].elements,
                "sha256": hashlib.sha256(file.read(name).tobytes()).hexdigest(),
            }
            for name in order
        ]
        return {"metadata": file.metadata, "tensors": tensors}


def test_reads_the_tensors_python_reads(tmp_path: Path) -> None:
    save_tensors(tmp_path / "plain", TENSORS)
    save_tensors(tmp_path / "metadata", TENSORS, METADATA)
    save_tensors(tmp_path / "none", {})
    write_raw(
        tmp_path / "out_of_order", {"b": entry([4, 8]), "a": entry([0, 4]), "c": entry([8, 8], [0, (1 << 61) - 1])}
    )
    with (tmp_path / "out_of_order").open("ab") as file:
        file.write(b"01234567")
    paths = sorted(tmp_path.iterdir())
    assert tool("tensors", *paths) == [seen_by_python(path) for path in paths]


def entry(offsets: list[int], shape: list[int] | None = None) -> dict[str, object]:
    return {"dtype": "F32", "shape": [1] if shape is None else shape, "data_offsets": offsets}


@pytest.mark.parametrize("metadata", [{}, dict(sorted(METADATA.items()))], ids=["no metadata", "metadata"])
@pytest.mark.parametrize("tensors", [TENSORS, {}, {"a": np.zeros(3, np.uint8)}], ids=["all", "none", "odd bytes"])
def test_writes_the_bytes_python_writes(tmp_path: Path, tensors: dict[str, Any], metadata: dict[str, str]) -> None:
    path = tmp_path / "python"
    save_tensors(path, tensors, metadata)
    (written,) = tool("rewrite", path)
    again = tmp_path / "python.again"
    assert written == again.stat().st_size
    assert again.read_bytes() == path.read_bytes()
    assert sorted(tmp_path.iterdir()) == [path, again]


@pytest.mark.parametrize("name", HOSTILE)
def test_refuses_the_hostile_headers_python_refuses(tmp_path: Path, name: str) -> None:
    header, data, message = HOSTILE[name]
    path = tmp_path / "hostile"
    write_raw(path, header, data)
    found = refusal("tensors", path, WEIGHTS)
    assert str(path) in found
    assert re.search(message, found)


def test_refuses_what_is_no_tensor_file(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "huge").write_bytes(struct.pack("<Q", HEADER_CAP_BYTES + 1))
    (tmp_path / "cut").write_bytes(struct.pack("<Q", 9) + b"{}")
    os.mkfifo(tmp_path / "pipe")
    for name, message in (
        ("absent", "cannot be opened: No such file or directory"),
        (".", "a file expected, found a folder"),
        ("empty", "0 bytes, a tensor file has at least 8"),
        ("huge", f"at most {HEADER_CAP_BYTES} accepted"),
        ("cut", "header of 9 bytes in a file of 10"),
        ("pipe", "a file expected, found a pipe or a device"),
    ):
        assert message in refusal("tensors", tmp_path / name, WEIGHTS)


def test_every_truncation_of_a_tensor_file_is_refused(tmp_path: Path) -> None:
    save_tensors(tmp_path / "whole", TENSORS)
    whole = (tmp_path / "whole").read_bytes()
    cuts = [tmp_path / f"cut{length}" for length in range(len(whole))]
    for length, path in enumerate(cuts):
        path.write_bytes(whole[:length])
    assert [found.get("status") for found in tool("tensors", *cuts)] == [WEIGHTS] * len(cuts)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path, old = tmp_path / "new", tmp_path / "new.again"
    save_tensors(path, {"a": np.zeros(FILE_SIZE_LIMIT, np.float32)})
    old.write_bytes(b"old")
    # Python ignores SIGXFSZ, and so the child does: a write past the limit fails with EFBIG
    with files_of_at_most(FILE_SIZE_LIMIT):
        (found,) = tool("rewrite", path, restore_signals=False)
    assert found == {
        "status": STORAGE,
        "error": f"{old}: cannot write: File too large; free space or choose another place",
    }
    assert old.read_bytes() == b"old"
    assert sorted(tmp_path.iterdir()) == [path, old]


def test_a_folder_in_the_way_is_an_error_that_leaves_nothing(tmp_path: Path) -> None:
    save_tensors(tmp_path / "new", TENSORS)
    (tmp_path / "new.again").mkdir()
    (found,) = tool("rewrite", tmp_path / "new")
    assert found["status"] == STORAGE
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "new.again"]


@pytest.mark.parametrize("size", [0, 1, 55, 56, 57, 63, 64, 65, 119, 120, 128, (1 << 17) - 1, (1 << 17) + 1])
def test_sha256(tmp_path: Path, size: int) -> None:
    path = tmp_path / "bytes"
    path.write_bytes(np.random.default_rng(size).bytes(size))
    assert tool("sha256", path) == [hashlib.sha256(path.read_bytes()).hexdigest()]


@pytest.mark.parametrize("size", [0, 3, 55, 56, 64, 1000, 100_000])
def test_sha256_by_each_implementation(tmp_path: Path, size: int) -> None:
    message = np.random.default_rng(size).bytes(size)
    path = tmp_path / "blocks"
    path.write_bytes(pad(message))
    (found,) = tool("blocks", path)
    expected = hashlib.sha256(message).hexdigest()
    assert found == {"portable": expected, "instructions": expected if "sha256" in CPU_FEATURES else None}


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 127, 128, 129, 191, 320, 100_003])
def test_crc32_with_and_without_the_instructions(tmp_path: Path, size: int) -> None:
    path = tmp_path / "bytes"
    path.write_bytes(np.random.default_rng(size).bytes(size))
    assert tool("checksums", path) == [[zlib.crc32(path.read_bytes())] * 4]


def test_instructions_are_found_where_the_system_has_them() -> None:
    flags = set(Path("/proc/cpuinfo").read_text().split())
    assert ("sha256" in CPU_FEATURES) == bool({"sha_ni", "sha2"} & flags)
    assert ("crc32" in CPU_FEATURES) == bool({"pclmulqdq", "crc32"} & flags)


DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text(), below, max_size=4),
    max_leaves=20,
)  # fmt: skip


@settings(max_examples=10)
@given(documents=st.lists(DOCUMENTS, min_size=1, max_size=20), ascii_only=st.booleans())
def test_reads_and_writes_json_as_python_does(
    tmp_path_factory: pytest.TempPathFactory, documents: list[Any], ascii_only: bool
) -> None:
    folder = tmp_path_factory.mktemp("json")
    paths = [folder / str(number) for number in range(len(documents))]
    for path, document in zip(paths, documents, strict=True):
        path.write_text(json.dumps(document, ensure_ascii=ascii_only, indent=1), "utf-8")
    found = tool("json", *paths)
    assert found == documents
    assert repr(found) == repr(documents)  # 1, 1.0 and true, 0.0 and -0.0, and the order of keys


NOT_JSON = {
    "nothing": b"",
    "two values": b"1 2",
    "trailing comma": b"[1,]",
    "trailing comma in object": b'{"a":1,}',
    "no comma": b"[1 2]",
    "no colon": b'{"a" 1}',
    "key without quotes": b"{a:1}",
    "open list": b"[1",
    "open string": b'"a',
    "open escape": b'"\\',
    "unknown escape": b'"\\x41"',
    "short escape": b'"\\u12"',
    "lone high surrogate": b'"\\ud800"',
    "lone low surrogate": b'"\\udc00"',
    "two high surrogates": b'"\\ud800\\ud800"',
    "line feed in string": b'"\n"',
    "overlong UTF-8": b'"\xc0\x80"',
    "overlong UTF-8, three bytes": b'"\xe0\x80\x80"',
    "surrogate in UTF-8": b'"\xed\xa0\x80"',
    "past U+10FFFF": b'"\xf4\x90\x80\x80"',
    "cut UTF-8": b'"\xe2\x82"',
    "byte order mark": b"\xef\xbb\xbf1",
    "leading zero": b"01",
    "plus": b"+1",
    "no digit after point": b"1.",
    "no digit before point": b".5",
    "no digit in exponent": b"1e",
    "hexadecimal": b"0x1",
    "not a number": b"NaN",
    "infinity": b"-Infinity",
    "infinite number": b"1e999",
    "a word": b"nul",
    "single quotes": b"'a'",
    "comment": b"1 // one",
    "twice the key": b'{"a":1,"b":2,"a":3}',
    "twice the key, escaped": b'{"a":1,"\\u0061":2}',
    "deep nesting": b"[" * 100_000,
}


@pytest.mark.parametrize("name", NOT_JSON)
def test_refuses_what_is_not_json(tmp_path: Path, name: str) -> None:
    path = tmp_path / "document"
    path.write_bytes(NOT_JSON[name])
    assert "is not valid JSON" in refusal("json", path, TEXT)


def test_integers_past_64_bits_become_doubles(tmp_path: Path) -> None:
    path = tmp_path / "document"
    path.write_text("[9223372036854775807, 9223372036854775808, -9223372036854775809]")
    assert repr(tool("json", path)) == "[[9223372036854775807, 9.223372036854776e+18, -9.223372036854776e+18]]"


def test_quotes_as_python_does_and_replaces_broken_utf8(tmp_path: Path) -> None:
    text = "".join(map(chr, range(0x180))) + "\ud7ff\ue000\uffff\U00010000😀\U0010ffff"
    (tmp_path / "text").write_text(text, "utf-8", newline="")
    (tmp_path / "broken").write_bytes(b"a\xffb\xe2\x82c\xed\xa0\x80")
    assert tool("quote", tmp_path / "text", tmp_path / "broken") == [text, "a\ufffdb\ufffd\ufffdc\ufffd\ufffd\ufffd"]


MODEL = LanguageModelConfig("gru", vocabulary=5, embedding=3, hidden=2, layers=1)
TRAINING = TrainingConfig(minibatch=4, bptt=6, learning_rate=0.1, loss="lwf", user_share=0.3)


def write_folder(folder: Path, training: TrainingConfig = TRAINING) -> dict[str, Any]:
    """A folder whose files have the sizes that its manifest gives, and that manifest."""
    folder.mkdir()
    for name in FILES:
        (folder / name).write_bytes(name.encode())
    Manifest(
        model=MODEL,
        training=training,
        states=(StateTensor("h0", "h0.next", (1, 4, 2)),),
        tensors=tuple(TensorEntry(spec.name, spec.shape, "F32", "0" * 64) for spec in MODEL.tensor_specs()),
        files={name: FileEntry(len(name), hashlib.sha256(name.encode()).hexdigest()) for name in FILES},
        tools={"python": "3"},
    ).write(folder)
    document: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    return document


@pytest.mark.parametrize("clip_norm", [5.0, None, 1])
def test_reads_the_manifest_python_reads(tmp_path: Path, clip_norm: float | None) -> None:
    write_folder(tmp_path / "a", msgspec.structs.replace(TRAINING, clip_norm=clip_norm))
    expected = open_artifacts(tmp_path / "a")
    (found,) = tool("manifest", tmp_path / "a")
    assert found["model"] == document_of(expected.manifest.model)
    assert found["training"] == document_of(expected.manifest.training)
    assert found["states"] == [{"input": "h0", "output": "h0.next", "shape": [1, 4, 2]}]
    assert found["tensors"] == [[entry.name, list(entry.shape)] for entry in expected.manifest.tensors]
    assert found["weights_sha256"] == expected.weights_sha256


def put(*keys: Any, value: Any) -> Callable[[dict[str, Any]], object]:
    def change(document: dict[str, Any]) -> None:
        place: Any = document
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value

    return change


# What both readers refuse, and what the C++ message says.
BAD_MANIFESTS = {
    "other version": (put("schema_version", value=4), "schema_version 3 expected, found 4"),
    "version of wrong type": (put("schema_version", value="3"), 'schema_version 3 expected, found "3"'),
    "no version": (lambda document: document.pop("schema_version"), "schema_version 3 expected, found none"),
    "version 1": (put("schema_version", value=1), "schema_version 3 expected, found 1"),
    "graph missing": (
        lambda document: document["files"].pop("training_model_sampled.onnx"),
        "training_model_sampled.onnx is missing",
    ),
    "other rules of text": (put("text", "rules", value=2), "rules is 2, expected 1"),
    "another Unicode": (put("text", "unicode", value="16.0.0"), 'unicode is "16.0.0", expected "15.0.0"'),
    "no model": (lambda document: document.pop("model"), "manifest: field model is missing"),
    "unknown field": (put("extra", value=1), 'field "extra" is unknown'),
    "no cell": (lambda document: document["model"].pop("cell"), "model: field cell is missing"),
    "model is a list": (put("model", value=[1]), r"model is \[1\], expected an object"),
    "other cell": (put("model", "cell", value="rnn"), 'cell is "rnn", expected one of lstm, gru'),
    "no words": (put("model", "vocabulary", value=0), "vocabulary is 0, expected a whole number from 1"),
    "half a layer": (put("model", "layers", value=1.5), "layers is 1.5, expected a whole number"),
    "size as text": (put("model", "hidden", value="2"), 'hidden is "2", expected a whole number'),
    "no minibatch": (put("training", "minibatch", value=0), "minibatch is 0"),
    "rate of zero": (put("training", "learning_rate", value=0), "learning_rate is 0, expected a number more than 0"),
    "rate as text": (put("training", "learning_rate", value="1"), "learning_rate is"),
    "negative clip": (put("training", "clip_norm", value=-1), "clip_norm is -1, expected null or a number"),
    "other loss": (put("training", "loss", value="mse"), "loss is .mse., expected one of ce, lwf"),
    "other reduction": (put("training", "loss_reduction", value="sum"), "expected one of sum_over_time, mean"),
    "share of zero": (put("training", "user_share", value=0), "user_share is 0, expected a number in"),
    "dropout of one": (put("training", "dropout", value=1), "dropout is 1, expected a number in"),
    "states as number": (put("states", value=3), "states is 3, expected a list"),
    "state without output": (lambda document: document["states"][0].pop("output"), "field output is missing"),
    "tensor without dtype": (lambda document: document["tensors"][0].pop("dtype"), "field dtype is missing"),
    "tools as number": (put("tools", value=3), "tools is 3, expected an object"),
    "file missing": (lambda document: document["files"].pop("checkpoint"), "field checkpoint is missing"),
    "file unknown": (put("files", "../x", value={"bytes": 0, "sha256": "0" * 64}), 'field "../x" is unknown'),
    "file of wrong size": (put("files", "vocab.txt", "bytes", value=3), "vocab.txt: 3 bytes expected, found 9"),
}

# What Python leaves to whoever uses the value, and the phone refuses at once.
BAD_ON_THE_PHONE = {
    "truth as size": (put("model", "layers", value=True), "layers is true, expected a whole number"),
    "number as truth": (put("model", "tied", value=1), "tied is 1, expected true or false"),
    "too large": (put("model", "hidden", value=1 << 29), "expected a whole number from 1 to"),
    "half a step": (put("training", "bptt", value=2.5), "bptt is 2.5, expected a whole number"),
    "state of other shape": (put("states", 0, "shape", value=[1, 4, 3]), r"shape is \[1, 4, 3\], expected \[1, minib"),
    "state name": (put("states", 0, "input", value=""), 'input is "", expected a text'),
    "overflowing tensor": (put("tensors", 0, "shape", value=[1 << 40, 1 << 40]), "of less than 2.60 elements"),
    "empty tensor": (put("tensors", 0, "shape", value=[0]), r"shape is \[0\], expected a list of up to 8"),
    "tensor twice": (put("tensors", 1, "name", value="embedding.weight"), "expected each name once"),
    "half precision": (put("tensors", 0, "dtype", value="F16"), 'dtype is "F16", expected one of F32'),
    "hash": (put("files", "weights.safetensors", "sha256", value="A" * 64), "expected a SHA-256"),
}


@pytest.mark.parametrize("name", [*BAD_MANIFESTS, *BAD_ON_THE_PHONE])
def test_refuses_manifests_that_say_nonsense(tmp_path: Path, name: str) -> None:
    change, message = BAD_MANIFESTS.get(name) or BAD_ON_THE_PHONE[name]
    document = write_folder(tmp_path / "a")
    change(document)
    (tmp_path / "a/manifest.json").write_text(json.dumps(document))
    if name in BAD_MANIFESTS:
        with pytest.raises(ArtifactsError):
            open_artifacts(tmp_path / "a")
    found = refusal("manifest", tmp_path / "a", ARTIFACTS)
    assert found.startswith(f"{tmp_path}/a/")
    assert re.search(message, found)


def test_names_what_is_missing_of_a_folder(tmp_path: Path) -> None:
    write_folder(tmp_path / "a")
    (tmp_path / "a/checkpoint").unlink()
    assert "checkpoint: named in manifest.json, not found" in refusal("manifest", tmp_path / "a", ARTIFACTS)
    (tmp_path / "a/manifest.json").write_text("{nonsense")
    assert "is not valid JSON (expected a key at byte 1)" in refusal("manifest", tmp_path / "a", ARTIFACTS)
    (tmp_path / "a/manifest.json").unlink()
    assert "an export that did not finish" in refusal("manifest", tmp_path / "a", ARTIFACTS)
    assert "no such folder" in refusal("manifest", tmp_path / "b", ARTIFACTS)
