"""What examples/watching asks Prometheus for."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parents[2] / "examples/watching"
KEYWORDS = {"and", "or", "unless", "bool", "offset"}
OF_PROMETHEUS = {"job", "instance"}  # labels that it adds


def dashboard() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text("utf-8"))
    return document


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((FOLDER / "rules.yml").read_text("utf-8"))["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def panel_expressions() -> list[str]:
    return [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]


def metrics_in(expression: str) -> set[str]:
    """The metrics that an expression of PromQL names: each word that is no function, keyword, label or duration."""
    bare = re.sub(r'"[^"]*"|\[[^]]*\]', "", expression)
    bare = re.sub(r"\{[^}]*\}|\b(by|without|on|ignoring|group_left|group_right) *\([^)]*\)", "", bare)
    return set(re.findall(r"(?<![\w.])([a-zA-Z_:][\w:]*)\b(?! *\()", bare)) - KEYWORDS


def selectors_in(expression: str) -> set[tuple[str, str]]:
    """The metrics and labels of an expression's selectors, as in `metric{label="value"}`."""
    found = re.findall(r"([\w:]+)\{([^}]*)\}", expression)
    return {(metric, label) for metric, inner in found for label in re.findall(r"(\w+) *[=!]", inner)}
