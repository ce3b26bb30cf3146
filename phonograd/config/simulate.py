"""The file of a study: of `phonograd simulate`, and of the commands that attack or measure what it simulates.

One file serves all of them. Each leaves out what it does not use, such as the tables of the others.
"""

from pathlib import Path
from typing import Annotated

from phonograd.api.inputs import Engine
from phonograd.config.layout import Layout, Table, mark_unused, table
from phonograd.config.serve import MASKED, Masking
from phonograd.config.strategies import STRATEGY, STRATEGY_TABLES, publish_tables
from phonograd.device_runtime.base.documents import about
from phonograd.device_runtime.base.errors import how_to_install
from phonograd.device_runtime.base.settings import Count, Settings
from phonograd.device_runtime.engine.backend import PrecisionChoice
from phonograd.server_agg.aggregation.settings import STRATEGIES
from phonograd.server_agg.settings.masked import MaskedSettings
from phonograd.simulation.attacks.audit import AuditSettings
from phonograd.simulation.attacks.canaries import CanarySettings
from phonograd.simulation.attacks.run import AttackSettings
from phonograd.simulation.empirical.pairs import PrivacySettings
from phonograd.simulation.settings import SimulationSettings


class Study(Settings, frozen=True):
    """What the commands of a study read and write, and how they run."""

    artifacts: Annotated[Path, about("The artifacts folder that phones train from.")]
    users: Annotated[Path, about('JSONL lines {"user": NAME, "text": TEXT}, or a folder of NAME.txt files.')]
    rehearsal: Annotated[Path | None, about("General text to draw rehearsal messages from.")] = None
    workers: Annotated[Count | None, about("Processes that train, one thread each.  [default: one a core]")] = None
    general_test: Annotated[Path | None, about("General text to evaluate on.")] = None
    page: Annotated[Path | None, about("Write an HTML page with plots here.")] = None
    compare: Annotated[
        tuple[Path, ...], about("Another simulation's folder, to show on the page; may be repeated.")
    ] = ()
    engine: Annotated[
        Engine, about(f"What runs the workers: processes of this machine, or Ray ({how_to_install('ray')}).")
    ] = "local"
    accept_noise: Annotated[
        bool, about("Simulate with noise of which the model learns nothing (phonograd docs privacy).")
    ] = False
    precision: Annotated[
        PrecisionChoice,
        about(
            "Precision of matrix products: bf16 needs CPU support; bf16-emulated runs on any CPU, slowly; auto: bf16 "
            "if it is faster here."
        ),
    ] = "fp32"


class Output(Settings, frozen=True):
    """Folder of a simulation."""

    out: Annotated[Path, about("The simulation's folder; the same command resumes from it.")]


_PAGE = table("", Study, "page")
_OUT = table("", Output)
_OF_SIMULATE = table("", Study, "general_test", "compare", "engine", "accept_noise")
_ROUNDS = (
    table("rounds", SimulationSettings, "late", "deploy_every", count="rounds"),
    table("rounds", Masking),
    *publish_tables(SimulationSettings),
    table("failures", SimulationSettings, "drop_outs", "late_phones", "duplicates"),
    table(
        "masked",
        MaskedSettings,
        *("bits", "support", "clip", "weight_cap", "distributed_noise"),
        about="The grid of masked rounds. All phones weigh the same with weight_cap 1.",
        chosen_by=(MASKED, (True,)),
    ),
)
_EVALUATION = table("evaluation", SimulationSettings, "test_users", "kss", every="evaluate_every", last="evaluate_last")
_AUDIT = table("audit", AuditSettings)
_CANARIES = table("canaries", CanarySettings)
_MEMBERSHIP = table("membership", AttackSettings, users="membership_users")
_EMPIRICAL = table("empirical", PrivacySettings, "pairs", "texts", "words")
_OWN = (_AUDIT, _CANARIES, _MEMBERSHIP, _EMPIRICAL)
_TABLES = (
    table("", Study, "artifacts", "users", "rehearsal", "workers"),
    _OUT,
    _PAGE,
    _OF_SIMULATE,
    table("", SimulationSettings, "seed"),
    table("rounds", SimulationSettings, "clients_per_round"),
    *_ROUNDS,
    table(
        "training",
        SimulationSettings,
        *("text_bytes", "user_share", "epochs", "steps", "learning_rate", "codec", "output_sample"),
    ),
    table("training", Study, "precision"),
    *STRATEGY_TABLES,
    _EVALUATION,
    *_OWN,
)
_FLAGS = {
    "artifacts": "ARTIFACTS",
    "users": "",
    "rehearsal": "",
    "workers": "",
    "rounds.clients_per_round": "",
    STRATEGY: "--strategy",
    "training.codec": "",
}
_ROUND_FLAGS = {"out": "", "rounds.count": "--rounds"}


def _study(command: str, flags: dict[str, str], *others: Table) -> Layout:
    tables = tuple(mark_unused(one) if one in others else one for one in _TABLES)
    return Layout(command, tables, {**_FLAGS, **flags}, STRATEGY, STRATEGIES)


def _attack(command: str, own: Table) -> Layout:
    others = (one for one in _OWN if one is not own)
    return _study(command, _ROUND_FLAGS, _PAGE, _OF_SIMULATE, _EVALUATION, *others)


SIMULATE = _study(
    "simulate", {**_ROUND_FLAGS, "general_test": "", "page": "", "compare": "", "seed": "", "accept_noise": ""}, *_OWN
)
AUDIT = _attack("privacy audit", _AUDIT)
CANARIES = _attack("privacy canaries", _CANARIES)
MEMBERSHIP = _attack("privacy membership", _MEMBERSHIP)
EMPIRICAL = _study("privacy empirical", {"page": ""}, _OUT, _OF_SIMULATE, *_ROUNDS, _EVALUATION, *_OWN[:3])
