"""Opening a state folder: the first time from artifacts, later as it was left."""

import logging

from device_runtime.errors import ArtifactsError, StorageError, WeightsError
from device_runtime.manifest import WEIGHTS, Artifacts
from device_runtime.tensor_file import TensorFile, check_finite, check_specs, tile_ranges
from server_agg.settings import ServerSettings
from server_agg.storage.ledger import Ledger
from server_agg.storage.state_folder import StateFolder
from server_agg.storage.tables import Round

log = logging.getLogger(__name__)


def open_state(folder: StateFolder, ledger: Ledger, artifacts: Artifacts, settings: ServerSettings) -> None:
    """Bring folder and ledger to where a round is open.

    Raises ArtifactsError if the state began with other artifacts, WeightsError for a damaged model, StorageError.
    """
    if ledger.open_round() is None:
        _begin(folder, ledger, artifacts, settings)
    _check_artifacts(folder, ledger, artifacts)
    _apply_settings(ledger, settings)


def expect_open_round(ledger: Ledger) -> Round:
    """The open round. Raises StorageError if there is none, which only damage can bring about."""
    round_ = ledger.open_round()
    if round_ is None:
        raise StorageError(f"{ledger.path}: an open round expected, found none; restore the state folder")
    return round_


def _begin(folder: StateFolder, ledger: Ledger, artifacts: Artifacts, settings: ServerSettings) -> None:
    sha256 = artifacts.weights_sha256
    with TensorFile(artifacts.path(WEIGHTS)) as model:
        for name, spec in model.specs.items():
            for start, stop in tile_ranges(spec.elements):
                check_finite(str(model.path), name, model.read_range(name, start, stop))
    nbytes = folder.copy_model(artifacts.path(WEIGHTS), sha256)
    ledger.start(
        ledger.new_model(sha256, 0, None, nbytes),
        ledger.new_round(1, sha256, settings.clients_per_round, settings.weighting),
    )


def _check_artifacts(folder: StateFolder, ledger: Ledger, artifacts: Artifacts) -> None:
    base_sha256 = expect_open_round(ledger).base_sha256
    with TensorFile(artifacts.path(WEIGHTS)) as model, TensorFile(folder.model(base_sha256)) as base:
        try:
            check_specs(f"state {folder.root}", base.specs, model.specs.values())
        except WeightsError as error:
            raise ArtifactsError(
                f"{error}; the state belongs to other artifacts than {artifacts.folder}: choose another --state"
            ) from error
    if ledger.model(artifacts.weights_sha256) is None:
        raise ArtifactsError(
            f"state {folder.root}: one of its models expected in {artifacts.folder}, found "
            f"{artifacts.weights_sha256[:12]}…, which it never sent; choose another --state, or the artifacts it began "
            "with"
        )


def _apply_settings(ledger: Ledger, settings: ServerSettings) -> None:
    """Give the open round today's settings, unless it accepted updates under its own."""
    round_ = expect_open_round(ledger)
    wanted = (settings.clients_per_round, settings.weighting)
    if wanted == (round_.clients_per_round, round_.weighting):
        return
    if ledger.count_accepted(round_.number) == 0:
        ledger.change_round(round_.number, *wanted)
        return
    log.warning(
        "round %d has updates already and keeps clients_per_round %d and weighting %s until it closes",
        round_.number,
        round_.clients_per_round,
        round_.weighting,
    )
