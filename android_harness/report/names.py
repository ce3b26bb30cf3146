"""Names of phones and cores for people to read; text that a phone reports may contain anything."""

from collections import Counter
from collections.abc import Iterator, Sequence

from phonograd.android_harness.phones.facts import PhoneFacts
from phonograd.android_harness.result import Epoch, KeptAwake, PowerState, with_kind

MAX_NAME_LENGTH = 20


def printable(text: str, longest: int | None = None) -> str:
    """`text` on one line, with � for unprintable characters: controls, direction marks, lone surrogates."""
    clean = "".join(character if character.isprintable() else "�" for character in " ".join(text.split()))
    return clean if longest is None or len(clean) <= longest else f"{clean[: longest - 1]}…"


def phone_name(facts: PhoneFacts) -> str:
    """The model and the serial, or the serial alone."""
    serial = printable(facts.serial, MAX_NAME_LENGTH)
    return f"{printable(facts.model, MAX_NAME_LENGTH)} ({serial})" if facts.model else serial


def core_ranges(cores: Sequence[int]) -> str:
    """Core numbers in ascending order, in Linux's notation: `0-3,6`."""
    ranges: list[list[int]] = []
    for core in sorted(cores):
        if ranges and core == ranges[-1][-1] + 1:
            ranges[-1].append(core)
        else:
            ranges.append([core])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in ranges)


def describe_power(power: PowerState) -> str:
    """Describe power like `screen on, no doze, battery saver off`; unknown values are left out."""
    states = (
        (power.screen_on, "screen on", "screen off"),
        (power.dozing, "dozing", "no doze"),
        (power.battery_saver, "battery saver on", "battery saver off"),
    )
    return ", ".join(yes if value else no for value, yes, no in states if value is not None)


def refused_line(kept: KeptAwake) -> str:
    """What Android did not let be changed, and the switch that may allow it."""
    return (
        f"Android refused to change {', '.join(kept.refused)}, so it may sleep: in its developer options turn on "
        '"USB debugging (Security settings)" (Xiaomi), or "Disable permission monitoring" (OPPO, realme, OnePlus)'
    )


def short_names(phones: Sequence[PhoneFacts]) -> list[str]:
    """A short name for each phone: its model, with the end of the serial if several phones have that model."""
    models = [printable(facts.model or facts.serial, MAX_NAME_LENGTH) for facts in phones]
    same = Counter(models)
    return [
        f"{model} ·{printable(facts.serial)[-4:]}" if same[model] > 1 else model
        for model, facts in zip(models, phones, strict=True)
    ]


def named_epochs(epochs: Sequence[Epoch]) -> Iterator[tuple[str, Epoch]]:
    """Epochs with their names: `warm-up`, or a number from 1 for each output layer, such as `2, sampled`."""
    timed = Counter[str]()
    for epoch in epochs:
        kind = epoch.output_layer.kind
        timed[kind] += not epoch.warm_up
        yield with_kind("warm-up" if epoch.warm_up else str(timed[kind]), kind), epoch
