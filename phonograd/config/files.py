"""The configuration files of all commands that have one."""

from collections.abc import Callable, Mapping
from importlib import import_module

from phonograd.config.layout import Layout


def _layout(module: str, name: str) -> Callable[[], Layout]:
    def load() -> Layout:
        found: Layout = getattr(import_module(f"phonograd.config.{module}"), name)
        return found

    return load


FILES: Mapping[str, Callable[[], Layout]] = {
    "serve": _layout("serve", "SERVE"),
    "simulate": _layout("simulate", "SIMULATE"),
    "privacy audit": _layout("simulate", "AUDIT"),
    "privacy canaries": _layout("simulate", "CANARIES"),
    "privacy membership": _layout("simulate", "MEMBERSHIP"),
    "privacy empirical": _layout("simulate", "EMPIRICAL"),
    "train": _layout("train", "TRAIN"),
    "pretrain": _layout("pretrain", "PRETRAIN"),
    "export": _layout("export", "EXPORT"),
    "bench capacity": _layout("bench_capacity", "CAPACITY"),
    "phone-bench": _layout("phone_bench", "PHONE_BENCH"),
    "phone-round": _layout("phone_round", "PHONE_ROUND"),
}
