"""The file of `phonograd phone-bench`."""

from pathlib import Path
from typing import Annotated

from phonograd.android_harness.timing.settings import PhoneBenchSettings, TextSettings
from phonograd.config.layout import Layout, table
from phonograd.device_runtime.base.documents import about
from phonograd.device_runtime.base.settings import Settings


class PhoneBenching(Settings, frozen=True):
    """What the command `phone-bench` reads and writes, and on which phones."""

    artifacts: Annotated[Path, about("The artifacts folder.")]
    serials: Annotated[
        tuple[str, ...], about("Phones to use, by adb's serial, an option for each.  [default: all that are ready]")
    ] = ()
    out: Annotated[Path | None, about("Write the result here, as --json prints it.")] = None
    html: Annotated[Path | None, about("Write a page with plots here.")] = None
    trace: Annotated[Path | None, about("Write a trace for ui.perfetto.dev here.")] = None
    compare: Annotated[Path | None, about("Compare with this earlier result.")] = None
    max_slowdown: Annotated[
        str | None, about("With compare: exit with code 24 if slower by more than this share, such as '10%'.")
    ] = None
    fail_unsure: Annotated[
        bool, about("With max_slowdown: exit with code 24 also if noise, or a missing phone, leaves that open.")
    ] = False


PHONE_BENCH = Layout(
    "phone-bench",
    (
        table("", PhoneBenching, "artifacts"),
        table(
            "bench",
            PhoneBenchSettings,
            *("epochs", "warm_up", "cooldown_seconds", "codecs", "sweep", "sample_seconds"),
        ),
        table("text", TextSettings),
        table(
            "training",
            PhoneBenchSettings,
            *("threads", "cores", "pin", "precision", "output_sample", "full_softmax", "duty", "nice"),
        ),
        table("phones", PhoneBenching, "serials"),
        table(
            "phones",
            PhoneBenchSettings,
            *("min_battery", "fixed_performance", "stay_awake", "heartbeat_timeout", "keep"),
        ),
        table("report", PhoneBenching, "out", "html", "trace", "compare", "max_slowdown", "fail_unsure"),
    ),
    flags={
        "artifacts": "ARTIFACTS",
        "bench.epochs": "",
        "bench.sweep": "",
        "text.user": "",
        "training.output_sample": "",
        "phones.serials": "--serial",
        "phones.keep": "",
        "report.out": "",
        "report.html": "",
        "report.trace": "",
        "report.compare": "",
        "report.max_slowdown": "",
    },
)
