"""Starting a server: create its state from artifacts, or continue an existing one."""

import logging

from phonograd.device_runtime.base.errors import ArtifactsError, UsageError, WeightsError
from phonograd.device_runtime.formats.manifest import WEIGHTS, Artifacts
from phonograd.device_runtime.formats.tensor_file import TensorFile, check_finite, check_specs, tile_ranges
from phonograd.server_agg.aggregation.privacy.accountant import require_dp_accounting
from phonograd.server_agg.aggregation.settings import FTRL, StrategySettings
from phonograd.server_agg.rounds import noise_runs, opening, privacy
from phonograd.server_agg.rounds.opening import add_round, expect_open_round
from phonograd.server_agg.rounds.slow_closing import Students
from phonograd.server_agg.settings.noise import covering_noise
from phonograd.server_agg.settings.server import ServerSettings
from phonograd.server_agg.storage import cohorts, queries
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.state_folder import StateFolder
from phonograd.server_agg.storage.tables import Model, Round

log = logging.getLogger(__name__)


def open_state(
    folder: StateFolder, ledger: Ledger, artifacts: Artifacts, settings: ServerSettings, slow_models: Students
) -> None:
    """Prepare folder and ledger so that a round is open, with these settings if it has no updates yet.

    Raises ArtifactsError if the state was started with other artifacts, WeightsError for a damaged model, StorageError,
    MissingExtraError for a private strategy without dp-accounting or SciPy, UsageError for masked settings that do not
    suit the model, for a run of dp-ftrl that is not the ledger's, and for noise that destroys the model or an end of
    privacy if the settings do not allow it, and what `slow_models` requires of a slow strategy.
    """
    if settings.masked is not None:
        with TensorFile(artifacts.path(WEIGHTS)) as model:
            settings.masked.about(model)
    if settings.strategy.private or (settings.masked is not None and settings.masked.distributed_noise):
        require_dp_accounting()
    if settings.strategy.slow:
        slow_models.require(settings.transfer)
    with ledger.reading() as session:
        open_ = queries.open_round(session)
    base = artifacts.path(WEIGHTS) if open_ is None else folder.fetch(folder.model(open_.base_sha256))
    if not base.is_file():
        ledger.require_sound()
    run = noise_runs.required_run(ledger, settings.strategy, base)
    _tell_noise(ledger, artifacts, settings, run)
    if open_ is None:
        _begin(folder, ledger, artifacts, settings, run)
    _check_artifacts(folder, ledger, artifacts)
    _apply_settings(ledger, settings, run)
    with ledger.reading() as session:
        round_ = expect_open_round(ledger, session)
        base_row = session.get_one(Model, round_.base_sha256)
    residual, buffers = base_row.residual_sha256, base_row.buffers_sha256
    for path_of, sha256 in ((folder.residual, residual), (folder.noise_buffers, buffers)):
        if sha256 is not None:
            folder.check_content(path_of(sha256))
    if StrategySettings.from_json(round_.strategy).slow:  # of earlier settings, if it has updates
        slow_models.require(opening.transfer_settings_of(round_))


def _tell_noise(ledger: Ledger, artifacts: Artifacts, settings: ServerSettings, run: str | None) -> None:
    with ledger.reading() as session:
        population = max(settings.strategy.population, len(privacy.enrolled_phones(session)))
    phones, weights = settings.rules.clients_per_round, artifacts.path(WEIGHTS)
    noise = covering_noise(weights, settings.strategy, population, phones, settings.masked, run)
    if noise is None:
        return
    if not settings.accept_noise:
        noise.require_less()
    log.log(logging.WARNING if noise.covers else logging.INFO, "%s", noise)


def _begin(
    folder: StateFolder, ledger: Ledger, artifacts: Artifacts, settings: ServerSettings, run: str | None
) -> None:
    sha256 = artifacts.weights_sha256
    with TensorFile(artifacts.path(WEIGHTS)) as model:
        for name, spec in model.specs.items():
            for start, stop in tile_ranges(spec.elements):
                check_finite(str(model.path), name, model.read_range(name, start, stop))
    nbytes = folder.copy_model(artifacts.path(WEIGHTS), sha256)
    now = ledger.clock()
    with ledger.writing() as session:
        if queries.open_round(session) is not None:
            return  # another server was first
        session.add(Model(sha256=sha256, round=0, bytes=nbytes, created_at=now))
        session.flush()  # the round refers to it
        add_round(session, now, 1, sha256, settings, run)


def _check_artifacts(folder: StateFolder, ledger: Ledger, artifacts: Artifacts) -> None:
    with ledger.reading() as session:
        base_sha256 = expect_open_round(ledger, session).base_sha256
        known = session.get(Model, artifacts.weights_sha256) is not None
    with TensorFile(artifacts.path(WEIGHTS)) as model, TensorFile(folder.fetch(folder.model(base_sha256))) as base:
        try:
            check_specs(f"state {folder.root}", base.specs, model.specs.values())
        except WeightsError as error:
            raise ArtifactsError(
                f"{error}; it was started from other artifacts than {artifacts.folder}; choose another `state` folder"
            ) from error
    if not known:
        ledger.require_sound()
        raise ArtifactsError(
            f"state {folder.root}: expected one of its models in {artifacts.folder}, found "
            f"{artifacts.weights_sha256[:12]}…; choose another `state` folder, or the artifacts it was started with"
        )


def _apply_settings(ledger: Ledger, settings: ServerSettings, run: str | None) -> None:
    """Give the open round these settings, unless it already has accepted updates, and say what changes."""
    with ledger.writing() as session:
        round_ = expect_open_round(ledger, session)
        changes = opening.settings_changed(round_, settings)
        if not changes:
            return
        if not settings.end_privacy:
            _require_privacy(round_, settings)
        begun = cohorts.has_messages(session, round_.number) or queries.count_updates(
            session, round_.number, "accepted"
        )
        if settings.strategy.strategy == FTRL and round_.average_sha256 is not None:
            raise UsageError(
                f"`strategy` is {FTRL!r}, but round {round_.number} is between two models that phones get; start with "
                "the settings of the last start but `deploy_every` 1, and change when the round is closed"
            )
        keeps = bool(begun) or round_.closing_at is not None
        if not keeps:
            same = StrategySettings.from_json(round_.strategy) == settings.strategy
            opening.apply_settings(round_, settings)
            if round_.run is None and run is not None:  # its deadline counts from now
                round_.opened_at = ledger.clock()
            noise_runs.set_step(session, round_, run)
            if not same:  # its phones were sampled with other settings
                privacy.resample_phones(session, round_, ledger.clock())
    when = " already has updates and keeps its settings until it closes; then" if keeps else ": settings changed"
    log.warning("round %d%s: %s", round_.number, when, ", ".join(changes))


def _require_privacy(round_: Round, settings: ServerSettings) -> None:
    """Raise UsageError if rounds with `settings` would hide less of their phones than this one."""
    kept = privacy.hidden_by(opening.round_with(settings))
    if lost := [how for how in privacy.hidden_by(round_) if how not in kept]:
        raise UsageError(
            f"`strategy` is {settings.strategy.strategy!r}: rounds with these settings have no "
            f"{' and no '.join(lost)}, which round {round_.number} has; start with those of the last start, or give "
            "`end_privacy`"
        )
