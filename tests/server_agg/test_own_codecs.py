"""Codecs of one's own on the server: what is read of them, and that their faults refuse an update and harm nothing."""

import logging
import tempfile
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phonograd.device_runtime.base import own_classes
from phonograd.device_runtime.base.errors import StorageError, UsageError
from phonograd.device_runtime.formats.frozen import trained_specs
from phonograd.device_runtime.formats.tensor_file import TensorFile, load_tensors, save_tensors
from phonograd.device_runtime.update import own_update
from phonograd.device_runtime.update.own_codec import OWN, OwnCodecError, own_codec, recode
from phonograd.device_runtime.update.own_update import open_update
from phonograd.server_agg.refusals import InvalidUpdateError, MalformedUpdateError
from phonograd.server_agg.report.document import phones_of, report_of
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.settings.masked import MaskedSettings
from phonograd.server_agg.settings.rules import RoundRules
from phonograd.server_agg.settings.server import ServerSettings
from tests.server_agg.test_rounds import files, opened, send
from tests.server_agg.workshop import Workshop, settings_with
from tests.support.own_codecs import Faulty

NAME = "tests.support.own_codecs:Faulty"
TERNARY = "examples.own_codec:Ternary"


@pytest.fixture(autouse=True)
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OWN, "by_name", {})


def server_with(clients: int = 2, **changes: object) -> ServerSettings:
    return settings_with(clients_per_round=clients, codecs=(NAME, TERNARY), **changes)


def sent(workshop: Workshop, phone: int, codec: str | None = None, **more: Any) -> Path:
    """An update of the phone in a codec of one's own; without a name, in one that is lossless."""
    path = workshop.update(phone, codec="rows-f32", **more)
    assert recode(path, more.get("base", workshop.base_path), codec or own_codec(Faulty))
    return path


def model_of(workshop: Workshop, folder: Path, updates: list[Path]) -> str:
    """The model that a round makes of these."""
    with opened(workshop, folder, server_with(len(updates))) as coordinator:
        for phone, update in enumerate(updates):
            send(coordinator, update, f"phone{phone}")
        assert coordinator.current.round == 2
        return coordinator.current.base_sha256


def test_a_round_makes_the_model_of_the_decoded_deltas(workshop: Workshop, tmp_path: Path) -> None:
    base, native = load_tensors(workshop.base_path), []
    own = [sent(workshop, 1), sent(workshop, 2, own_codec(TERNARY, deviations=3.0))]
    for phone, update in enumerate(own):
        with open_update(update) as one, TensorFile(workshop.base_path) as model:
            assert isinstance(one, own_update.OwnUpdate)
            with one.decoded(model) as decoded:
                trained = decoded.weights(model)
        assert not np.array_equal(trained["embedding.weight"], base["embedding.weight"])
        native.append(workshop.update(phone + 1, tokens=100, trained=trained))
    assert model_of(workshop, tmp_path / "own", own) == model_of(workshop, tmp_path / "native", native)
    lossless = workshop.trained(1)
    with open_update(own[0]) as one, TensorFile(workshop.base_path) as model, one.decoded(model) as decoded:
        for name, weights in decoded.weights(model).items():
            assert np.array_equal(weights, base[name] + (lossless[name] - base[name]))


def test_the_ledger_has_its_name_and_the_bytes_that_came(workshop: Workshop, state: Path) -> None:
    first, second = sent(workshop, 1, own_codec(TERNARY)), workshop.update(2)
    with opened(workshop, state, server_with()) as coordinator:
        assert coordinator.current.codecs[-2:] == (NAME, TERNARY)
        send(coordinator, first, "phone1")
        send(coordinator, second, "phone2")
        made = report_of(coordinator.ledger).rounds[0]
        nbytes = first.stat().st_size
        assert {name: (part.updates, part.bytes) for name, part in made.codecs.items()} == {
            TERNARY: (1, nbytes),
            "full-f32": (1, second.stat().st_size),
        }
        assert (nbytes + second.stat().st_size) / 2 == made.mean_bytes_per_phone
        assert nbytes < second.stat().st_size / 5
        assert made.model_ratio == made.base_bytes / made.mean_bytes_per_phone


REFUSED = {
    "damaged": "decode: not what I wrote",
    "missing": "delta: tensor embedding.weight F32[50, 8] expected, not found",
    "unknown": "delta: tensor mine is not part of the model",
    "shape": "delta: tensor embedding.weight F32[50, 8] expected, found embedding.weight F32[49, 8]",
    "dtype": "expected, found embedding.weight F64[50, 8]",
    "nan": "embedding.weight: element 0 is nan, expected a finite number",
    "infinity": "tensor embedding.weight: element",
    "bounds": "codec_settings: `fault` is 'bounds', expected another one",
    "far": "expected differences from the base below 2**30",
}
FAULTS = {
    "raises": "decode: RuntimeError: the server's own secret",
    "memory": "MemoryError: Unable to allocate 1.00 GiB",
    "exits": "decode: ended with 0",
    "dies": "decode: ended by SIGABRT",
    "hangs": "decode: took longer than",
    "type": "decode: AttributeError",
}


@pytest.mark.parametrize("fault", [*REFUSED, *FAULTS])
def test_what_goes_wrong_refuses_the_update_and_leaves_no_trace(
    fault: str, workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if fault == "hangs":
        monkeypatch.setattr(own_update, "DECODE_SECONDS", 0.5)
    good = [workshop.update(phone) for phone in (1, 2)]
    bad = with_settings(sent(workshop, 3), f'{{"fault": "{fault}"}}')
    with opened(workshop, tmp_path / "state", server_with()) as coordinator:
        send(coordinator, good[0], "phone1")
        with caplog.at_level(logging.WARNING), pytest.raises(InvalidUpdateError) as refused:
            send(coordinator, bad, "phone3")
        assert refused.value.status == 422
        told = str(refused.value)
        assert REFUSED.get(fault, f"codec {NAME}: it failed on the update") in told
        if fault in FAULTS:
            assert FAULTS[fault] in caplog.text
            assert FAULTS[fault] not in told
        if fault != "far":  # which the fold refuses
            assert f"update of phone3 refused: codec {NAME}: decode: " in caplog.text
        assert str(tmp_path) not in told + caplog.text
        costs = {cost.phone: cost for cost in phones_of(coordinator.ledger, 1)}
        assert (costs["phone3"].state, costs["phone3"].reason) == ("rejected", told)
        assert files(coordinator.folder.uploads) == set()
        assert coordinator.current.accepted == 1
        send(coordinator, good[1], "phone2")
        assert coordinator.current.base_sha256 == model_of(workshop, tmp_path / "without", good)


def with_settings(update: Path, settings: str | None = None, **metadata: str) -> Path:
    """The update with other settings of its codec, or other metadata, and a checksum that fits."""
    with TensorFile(update) as file:
        told = {**file.metadata, **metadata} | ({} if settings is None else {"codec_settings": settings})
        payload = file.read("payload")
    save_tensors(update, {"payload": payload}, told, checksum=True)
    return update


def test_an_update_that_fails_is_decoded_once_and_holds_up_no_other(
    workshop: Workshop, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, others = sent(workshop, 1), []

    def decode(*_: object) -> None:
        others.append(send(coordinator, workshop.update(2), "phone2").accepted)  # meanwhile
        raise OwnCodecError("it hangs")

    monkeypatch.setattr(own_update, "_decode_apart", decode)
    with opened(workshop, state, server_with(3)) as coordinator:
        with pytest.raises(InvalidUpdateError, match="it hangs"):
            send(coordinator, bad, "phone1")
        assert (others, coordinator.current.accepted) == ([1], 1)


def test_a_refused_update_may_be_sent_again_whole(workshop: Workshop, state: Path) -> None:
    with opened(workshop, state, server_with()) as coordinator:
        with pytest.raises(InvalidUpdateError):
            send(coordinator, with_settings(sent(workshop, 1), '{"fault": "nan"}'), "phone1")
        assert send(coordinator, sent(workshop, 1), "phone1").accepted == 1


FRAMES: dict[str, dict[str, str]] = {
    "codec 'os:abort' is unknown": {"codec": "os:abort"},
    "version 3 expected, found '4'": {"version": "4"},
    "steps 1 expected": {"steps": "2"},
    "tokens: a whole number expected, found '0'": {"tokens": "0"},
    "seed: a whole number expected, found '-1'": {"seed": "-1"},
    "round: a whole number expected, found '1234567890123456789'": {"round": "1234567890123456789"},
}


@pytest.mark.parametrize("expected", FRAMES)
def test_a_frame_that_is_none(expected: str, workshop: Workshop, state: Path) -> None:
    bad = with_settings(sent(workshop, 1), **FRAMES[expected])
    with opened(workshop, state, server_with()) as coordinator:
        with pytest.raises(MalformedUpdateError, match=expected):
            send(coordinator, bad, "phone1")
        assert coordinator.current.accepted == 0


def test_damaged_bytes_and_other_tensors(workshop: Workshop, state: Path) -> None:
    sound, bad = sent(workshop, 1).read_bytes(), state.parent / "bad"
    with opened(workshop, state, server_with()) as coordinator:
        for phone, wrong in enumerate((sound[:-5] + b"?" + sound[-4:], sound[:-9], b"", sound + sound)):
            bad.write_bytes(wrong)
            with pytest.raises(MalformedUpdateError):
                send(coordinator, bad, f"phone{phone}")
        with TensorFile(sent(workshop, 1)) as file:
            told = file.metadata
        for tensors in ({}, {"payload": np.zeros(3, np.int8)}, {"payload": np.zeros(3, np.uint8), "b": np.zeros(1)}):
            save_tensors(bad, tensors, told, checksum=True)
            with pytest.raises(MalformedUpdateError, match="tensor payload U8 expected"):
                send(coordinator, bad, "phone")
        assert coordinator.current.accepted == 0


@pytest.mark.parametrize("codecs", [(), (TERNARY,)])
def test_only_codecs_that_the_server_was_started_with_are_loaded(
    codecs: tuple[str, ...], workshop: Workshop, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    update = sent(workshop, 1)
    monkeypatch.setattr(OWN, "by_name", {})
    with opened(workshop, state, settings_with(codecs=codecs)) as coordinator:
        with pytest.raises(MalformedUpdateError, match=f"codec '{NAME}' is unknown"):
            send(coordinator, update, "phone1")
        assert NAME not in OWN.by_name


def test_a_restart_decodes_again_and_needs_the_codec(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    updates, state = [sent(workshop, 1), sent(workshop, 2, own_codec(TERNARY))], tmp_path / "state"
    expected = model_of(workshop, tmp_path / "undisturbed", updates)
    with opened(workshop, state, server_with()) as coordinator:
        send(coordinator, updates[0], "phone0")
    monkeypatch.setattr(OWN, "by_name", {})
    with pytest.raises(StorageError, match=f"cannot read an accepted update: .*'{NAME}' is unknown"):
        Coordinator(workshop.artifacts, state, settings_with(clients_per_round=2))
    with opened(workshop, state, server_with()) as coordinator:
        assert coordinator.current.accepted == 1
        send(coordinator, updates[1], "phone1")
        assert coordinator.current.base_sha256 == expected


def test_late_updates_and_bounds_go_by_the_decoded_delta(workshop: Workshop, tmp_path: Path) -> None:
    made = []
    for kind in ("native", "own"):
        settings = server_with(1, late="next", strategy="norm-bound", norm_bound=0.05)
        with opened(workshop, tmp_path / kind, settings) as coordinator:
            send(coordinator, workshop.update(1), "phone1")
            late = decoded(workshop, 2) if kind == "native" else sent(workshop, 2)
            assert send(coordinator, late, "phone2").round == 2
            made.append(coordinator.current.base_sha256)
    assert made[0] == made[1]


def decoded(workshop: Workshop, phone: int) -> Path:
    """What a lossless codec's update decodes to: base + (trained - base), rounded twice."""
    base = load_tensors(workshop.base_path)
    trained = {name: base[name] + (weights - base[name]) for name, weights in workshop.trained(phone).items()}
    return workshop.update(phone, trained=trained)


def test_a_killed_process_is_no_fault_of_the_update(
    workshop: Workshop, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    update = sent(workshop, 1)
    with opened(workshop, state, server_with()) as coordinator:
        with monkeypatch.context() as patched:
            patched.setattr(own_update, "_CHILD", "import os; os.kill(os.getpid(), 9)")
            with pytest.raises(StorageError, match="its process was killed"):
                send(coordinator, update, "phone1")
        assert send(coordinator, update, "phone1").accepted == 1


def test_a_full_disk_is_no_fault_of_the_update(
    workshop: Workshop, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    update = sent(workshop, 1)
    full = "import sys; print('/tmp/x: cannot write: No space left', file=sys.stderr); sys.exit(11)"
    with opened(workshop, state, server_with()) as coordinator:
        with monkeypatch.context() as patched:
            patched.setattr(own_update, "_CHILD", full)
            with pytest.raises(StorageError, match="No space left"):
                send(coordinator, update, "phone1")
            patched.setattr(tempfile, "tempdir", str(state / "missing"))
            with pytest.raises(StorageError, match="missing"):
                send(coordinator, update, "phone1")
        assert send(coordinator, update, "phone1").accepted == 1


@pytest.mark.parametrize(("fault", "expected"), [("encode", "encode: KeyError: 'mine'"), ("text", "found str")])
def test_a_codec_that_cannot_encode_leaves_no_update(fault: str, expected: str, workshop: Workshop) -> None:
    update = workshop.update(1, codec="rows-f32")
    with pytest.raises(OwnCodecError, match=expected):
        recode(update, workshop.base_path, own_codec(Faulty, fault=fault))
    assert not update.exists()


def test_frozen_tensors_are_not_coded(workshop: Workshop, tmp_path: Path) -> None:
    base = tmp_path / "base"
    save_tensors(base, load_tensors(workshop.base_path), {"frozen": "embedding.weight"})
    update = sent(workshop, 1, base=base)
    with open_update(update) as one, TensorFile(base) as model, one.decoded(model) as native:  # type: ignore[union-attr]
        assert update.stat().st_size < 4 * sum(spec.elements for spec in trained_specs(model)) + 1000
        assert np.array_equal(native.weights(model)["embedding.weight"], model.read("embedding.weight"))


def test_by_an_entry_point_and_what_is_no_codec(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("ternary", TERNARY, "phonograd.codecs")
    monkeypatch.setattr(own_classes, "entry_points", lambda group: (point,) if group == point.group else ())
    assert own_codec("ternary", deviations=2.0) == f'{TERNARY} {{"deviations": 2.0}}'
    with pytest.raises(UsageError, match="`codec` is 'tern', expected one of full-f32, .*ternary, or MODULE:CLASS"):
        own_codec("tern")
    with pytest.raises(UsageError, match=r"expected a subclass of phonograd.Codec"):
        ServerSettings(codecs=("json:loads",))
    with pytest.raises(ValueError, match="`codecs` has 'ternary', expected MODULE:CLASS"):
        ServerSettings(codecs=("ternary",))
    with pytest.raises(ValueError, match="`deviations` is 0, expected more than 0"):
        own_codec(TERNARY, deviations=0)
    rules = RoundRules(clients_per_round=MaskedSettings.cohort)
    with pytest.raises(ValueError, match="`codecs` are set"):
        ServerSettings(codecs=(TERNARY,), rules=rules, masked=MaskedSettings())
