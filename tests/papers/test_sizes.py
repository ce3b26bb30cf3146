"""Models side by side: what users save, who is measured, and the page and picture that are made of it."""

import hashlib
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

import phonograd
from phonograd.device_runtime.base.errors import ArtifactsError, TextError
from phonograd.papers import result
from phonograd.papers.curves import Point, lines
from phonograd.papers.experiment import load
from phonograd.papers.kinds import sizes
from phonograd.papers.kinds.simulated import Run
from phonograd.papers.page import page
from phonograd.papers.pictures import picture, write_page
from phonograd.papers.run import Context, Outcome
from phonograd.papers.run import run as run_experiment
from phonograd.papers.small import SmallInputs
from phonograd.simulation.users import part_of, read_users

SIMULATION = {"rounds": 1, "clients_per_round": 2, "text_bytes": 600}
SETTINGS = sizes.Settings(("2x650", "gboard-cifg"), {"sms": 2}, SIMULATION, {"fedavg": Run()}, written_bytes=600)
MODELS = {"2x650": 45.9, "keyboard-5mb": 4.7, "gboard-cifg": 1.4}
OTHERS = {"own words ahead p50, %": (1.0,)}


def run(tmp_path: Path, settings: sizes.Settings = SETTINGS, seed: int = 1) -> Outcome:
    work = tmp_path / f"work-{seed}"
    work.mkdir(exist_ok=True)
    small = SmallInputs(tmp_path / "inputs")
    return sizes.run(settings, Context(seed, work, tmp_path, 1, small, {}, lambda *_: None))


def made_up() -> result.Result:
    """Three models and three kinds of users; a figure tells where it is from."""
    states = {"as shipped": 0, "after an epoch": 2, "after rounds, fedavg": 4, "after rounds, top-rows": 3}
    rows = {
        f"{model}, {kind}, {state}": {
            "alone p50, %": (10.0 * size + place + more,),
            "own words p50, %": (10.0 * size + place + more + 20,),
        }
        for place, kind in enumerate(("sms", "chat", "blogs"))
        for size, model in enumerate(reversed(MODELS), 1)
        for state, more in states.items()
    }
    facts = {f"{model}: MB in int8": (megabytes,) for model, megabytes in MODELS.items()}
    return result.Result(
        "sizes", small=False, seeds=(1,), texts="made up", settings={}, facts=facts, rows=rows, version="0"
    )


def test_the_part_of_a_user_follows_from_their_name_alone() -> None:
    assert {name: part_of(name) for name in ("alice", "bob", "zoë", "ivan")} == {
        "alice": "table",
        "bob": "rounds",
        "zoë": "table",
        "ivan": "mix",
    }
    users = [f"user {number}" for number in range(4000)]
    parts = [part_of(user) for user in users]
    assert [round(8 * parts.count(part) / len(users)) for part in ("table", "rounds", "mix")] == [4, 1, 3]
    for user, part in zip(users, parts, strict=True):
        first = hashlib.sha256(user.encode()).digest()[0]
        assert part == ("table" if first < 128 else "rounds" if first < 160 else "mix")


def test_savings_are_those_that_the_api_measures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = run(tmp_path)
    assert list(found.rows) == [
        "2x650, sms, as shipped",
        "2x650, sms, after an epoch",
        "2x650, sms, after rounds, fedavg",
    ]
    shipped, trained, ended = found.rows.values()
    inputs = SmallInputs(tmp_path / "inputs")
    artifacts, users = inputs.path("2x650"), inputs.path("sms")
    assert artifacts is not None and users is not None
    phonograd.quantize(artifacts, tmp_path / "int8")
    alone, own = [], []
    for number, (earlier, written) in enumerate(sizes.choose_people(read_users(users), 2, 600, 600)):
        kss = phonograd.evaluate(artifacts, written, weights=tmp_path / "int8", kss=True).kss
        assert kss is not None
        alone.append(100 * kss)
        file = tmp_path / f"{number}.words"
        with (
            phonograd.PersonalWords(file, new=True) as words,
            phonograd.open_predictor(artifacts, weights=tmp_path / "int8", personal=words) as predictor,
        ):
            for message in earlier:
                predictor.learn(message.decode() + "\n")
            words.save()
        saved, _ = phonograd.keystrokes_saved(artifacts, written, weights=tmp_path / "int8", personal=file)
        own.append(100 * saved)
    assert found.units["2x650, sms, as shipped"] == {
        "alone": pytest.approx(alone),
        "own words": pytest.approx(own),
    }
    assert shipped["alone p50, %"] == pytest.approx(sum(alone) / 2)
    assert trained["alone p50, %"] != shipped["alone p50, %"] != ended["alone p50, %"]
    assert "MB up a round" not in shipped and ended["MB up a round"] > 0
    assert found.facts["2x650: MB in int8"] == pytest.approx((tmp_path / "int8").stat().st_size / 1e6)
    monkeypatch.setattr(sizes, "bench_predict", lambda *_: pytest.fail("measured again"))
    monkeypatch.setattr(sizes.phonograd, "quantize", lambda *_, **__: pytest.fail("measured again"))
    assert run(tmp_path).rows == found.rows
    again = run(tmp_path, replace(SETTINGS, rounds={}), seed=2)  # as shipped alone: once for all seeds
    assert again.rows == {"2x650, sms, as shipped": shipped}


def test_rounds_train_other_users_than_those_who_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = []

    def simulate(*given, **_):
        trained.extend(given[1])
        raise TextError("enough")

    monkeypatch.setattr(sizes.phonograd, "simulate", simulate)
    with pytest.raises(TextError, match="enough"):
        run(tmp_path)
    assert trained and {part_of(user) for user in trained} == {"rounds"}


def test_an_input_may_differ_from_seed_to_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {name: tmp_path / name for name in ("2x650", "sms", "chat", "blogs")}
    for name in (*given, "model-1", "model-2", "model-3"):
        (tmp_path / name).write_text(name)
    opened = []

    def open_model(_: sizes.Settings, context: Context) -> Outcome:
        opened.append(context.input("keyboard-5mb").read_text())
        return Outcome({"row": {"seed": context.seed}})

    monkeypatch.setattr(sizes, "run", open_model)
    hashes = []
    for number, model in enumerate(("model-{seed}", "model-{seed}", "model-1")):
        place, inputs = tmp_path / f"work-{number}", given | {"keyboard-5mb": tmp_path / model}
        hashes.append(run_experiment("sizes-trained", place, given=inputs).inputs["keyboard-5mb"])
        (tmp_path / "model-3").write_text("another")
    assert opened == ["model-1", "model-2", "model-3", "model-1", "model-2", "another", *3 * ["model-1"]]
    assert len(set(hashes)) == 3


def test_who_is_measured_wrote_enough_and_writes_what_they_have_not_learned() -> None:
    users = {name: [b"%d %s" % (number, name.encode()) for number in range(40)] for name in ("alice", "bob", "carol")}
    people = sizes.choose_people(users, 2, 100, 80)
    assert [person[0][0].split()[1] for person in people] == [b"alice", b"carol"]
    for earlier, written in people:
        assert not set(earlier) & set(written)
        assert [sum(len(message) + 1 for message in part) // 10 for part in (earlier, written)] == [10, 8]
    with pytest.raises(TextError, match="3 with 180 bytes of text expected, found 2"):
        sizes.choose_people(users, 3, 100, 80)


def test_percentiles_and_who_is_worse_than_with_the_first_model() -> None:
    first = {"alone": [30.0, 40.0, 50.0], "own words": [60.0, 60.0, 60.0]}
    now = {"alone": [26.9, 37.0, 60.0], "own words": [50.0, 50.0, 70.0]}
    assert sizes.figures_of(now, first) == pytest.approx(
        {
            **{"alone p10, %": 28.92, "alone p50, %": 37.0, "alone p90, %": 55.4},
            **{"alone ahead p50, %": -3.0, "alone, users worse": 1},
            **{"own words p10, %": 50.0, "own words p50, %": 50.0, "own words p90, %": 66.0},
            **{"own words ahead p50, %": -10.0, "own words, users worse": 2},
        }
    )


def test_lines_go_from_the_smallest_model_to_the_largest() -> None:
    plot = load("sizes").plots[1]
    drawn = lines(plot, made_up())
    assert list(drawn) == ["the model alone", "with own words", "after an epoch", "after 20 rounds"]
    assert drawn["the model alone"] == [
        Point(1.4, 11, None, "gboard-cifg"),
        Point(4.7, 21, None, "keyboard-5mb"),
        Point(45.9, 31, None, "2x650"),
    ]
    assert [[line[0].y for line in drawn.values()]] == [[11, 31, 13, 15]]
    with pytest.raises(ArtifactsError, match="plot 'chat': rows of the model alone, .* expected, found "):
        lines(plot, replace(made_up(), facts={}))


def test_a_page_of_its_own_with_its_picture(tmp_path: Path) -> None:
    results = tmp_path / "results"
    results.mkdir()
    result.write_result(results / "sizes.json", made_up())
    trained = replace(made_up(), experiment="sizes-trained", rows=dict.fromkeys(made_up().rows, OTHERS))
    result.write_result(results / "sizes-trained.json", trained)
    write_page(tmp_path / "results.md", results)
    assert "Which size" not in (tmp_path / "results.md").read_text("utf-8") == page(results)
    text = (tmp_path / "model-sizes.md").read_text("utf-8")
    assert text.startswith("# Which size of model?\n\nMade by `phonograd reproduce --page docs/results.md`")
    assert "![text messages. chat. blogs](pictures/sizes.svg)" in text
    assert "| keyboard-5mb, chat, after an epoch | 23 | 43 |" in text
    assert "| keyboard-5mb | 4.7 |" in text
    assert "\n\n## What makes a small model good\n\nKeystrokes saved" in text
    svg = (tmp_path / "pictures/sizes.svg").read_text("utf-8")
    assert svg == picture(load("sizes"), made_up())
    labels = re.findall(r"<text [^>]*>([^<]*)</text>", svg)
    for label in (*MODELS, "text messages", "chat", "blogs", "MB in int8", "keystrokes saved, %", "after 20 rounds"):
        assert label in labels, label
    width, height = map(float, re.findall(r'(?:width|height)="([0-9.]+)pt"', svg))
    assert width <= 390 and height > 2 * width  # one below the other, and no smaller on a phone than drawn
    assert "chat: the model alone: 1.4 11, 4.7 21, 45.9 31\n" in svg


def test_models_of_one_size_are_both_named() -> None:
    found = made_up()
    rows = found.rows | {
        row.replace("2x650", "2x650-mix"): row_of for row, row_of in found.rows.items() if "2x650" in row
    }
    both = replace(found, rows=rows, facts=found.facts | {"2x650-mix: MB in int8": (45.9,)})
    labels = re.findall(r">\s*(2x650[^<]*)<", picture(load("sizes"), both))
    assert {"2x650", "2x650-mix"} <= set(labels)
