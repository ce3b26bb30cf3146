"""phonograd: training on the phone itself, as a Python API. docs/python.md tells it in one page.

Each name is loaded when it is first used, so that `import phonograd` takes neither NumPy nor torch.
"""

from importlib import import_module

TYPE_CHECKING = False  # type checkers know the name; importing typing would take longer than all else here

__version__ = "0.1.0"

__all__ = [
    "Artifacts",
    "ArtifactsError",
    "AttackRecord",
    "AttackSettings",
    "BackendOptions",
    "BuildError",
    "CanarySettings",
    "Connection",
    "CountedVocabulary",
    "CurrentRound",
    "DownloadedModel",
    "EncodedUpdate",
    "EpochReport",
    "Evaluation",
    "JoinedRound",
    "LanguageModelConfig",
    "MissingExtraError",
    "Model",
    "OutOfMemoryError",
    "PhonogradError",
    "Predictor",
    "PretrainConfig",
    "PretrainProgress",
    "PretrainResult",
    "PrivacySettings",
    "ResumableState",
    "RoundRules",
    "RunningServer",
    "SecuritySettings",
    "ServerAddressError",
    "ServerRefusedError",
    "ServerSettings",
    "ServerStorage",
    "ServerUnreachableError",
    "SimulationRecord",
    "SimulationSettings",
    "StateError",
    "StoppedError",
    "StorageError",
    "StrategySettings",
    "Suggestion",
    "TextError",
    "Trained",
    "TrainingConfig",
    "TrainingError",
    "TransferSettings",
    "UnsupportedError",
    "UpdateError",
    "UpdateInfo",
    "UploadReceipt",
    "UsageError",
    "Vocabulary",
    "VocabularyError",
    "WeightsError",
    "build_vocabulary",
    "connect",
    "current_round",
    "decode_update",
    "discard",
    "download",
    "empirical_privacy",
    "encode_update",
    "evaluate",
    "export_artifacts",
    "fold_updates",
    "inspect",
    "join_round",
    "models",
    "open_artifacts",
    "open_model",
    "open_predictor",
    "predict",
    "pretrain",
    "pull",
    "quantize",
    "read_update",
    "report",
    "rollback",
    "round_report",
    "seeded_weights",
    "simulate",
    "simulate_attacks",
    "start_server",
    "train",
    "upload",
]

_MODULES = {
    "phonograd.api.administration": ("discard", "models", "report", "rollback", "round_report"),
    "phonograd.api.exporting": ("export_artifacts",),
    "phonograd.api.inspecting": ("inspect",),
    "phonograd.api.model": ("Model", "evaluate", "open_model"),
    "phonograd.api.predicting": ("open_predictor", "predict", "quantize"),
    "phonograd.api.pretraining": ("pretrain",),
    "phonograd.api.privacy": ("empirical_privacy", "simulate_attacks"),
    "phonograd.api.rounds": ("JoinedRound", "connect", "download", "join_round", "pull", "upload"),
    "phonograd.api.serving": ("RunningServer", "start_server"),
    "phonograd.api.simulating": ("simulate",),
    "phonograd.api.training": ("ResumableState", "Trained", "train"),
    "phonograd.api.updates": ("EncodedUpdate", "decode_update", "encode_update", "fold_updates", "read_update"),
    "phonograd.device_runtime.base.errors": (
        "ArtifactsError",
        "BuildError",
        "MissingExtraError",
        "OutOfMemoryError",
        "PhonogradError",
        "ServerRefusedError",
        "ServerUnreachableError",
        "StateError",
        "StoppedError",
        "StorageError",
        "TextError",
        "TrainingError",
        "UnsupportedError",
        "UpdateError",
        "UsageError",
        "VocabularyError",
        "WeightsError",
    ),
    "phonograd.device_runtime.client.server_client": (
        "Connection",
        "CurrentRound",
        "DownloadedModel",
        "UploadReceipt",
        "current_round",
    ),
    "phonograd.device_runtime.engine.backend": ("BackendOptions",),
    "phonograd.device_runtime.engine.predictor": ("Predictor", "Suggestion"),
    "phonograd.device_runtime.formats.manifest": ("Artifacts", "TrainingConfig", "open_artifacts"),
    "phonograd.device_runtime.formats.model_config": ("LanguageModelConfig",),
    "phonograd.device_runtime.text.evaluation": ("Evaluation",),
    "phonograd.device_runtime.text.vocabulary": ("Vocabulary",),
    "phonograd.device_runtime.training.report": ("EpochReport",),
    "phonograd.device_runtime.update.update_file": ("UpdateInfo",),
    "phonograd.export.pretrain_config": ("PretrainConfig", "PretrainProgress", "PretrainResult"),
    "phonograd.export.torch_layout": ("seeded_weights",),
    "phonograd.export.vocabulary_builder": ("CountedVocabulary", "build_vocabulary"),
    "phonograd.server_agg.aggregation.settings": ("StrategySettings",),
    "phonograd.server_agg.transfer.settings": ("TransferSettings",),
    "phonograd.server_agg.server": ("ServerAddressError",),
    "phonograd.server_agg.settings.rules": ("RoundRules",),
    "phonograd.server_agg.settings.security": ("SecuritySettings",),
    "phonograd.server_agg.settings.server": ("ServerSettings",),
    "phonograd.server_agg.settings.storage": ("ServerStorage",),
    "phonograd.simulation.attacks.canaries": ("CanarySettings",),
    "phonograd.simulation.attacks.records": ("AttackRecord",),
    "phonograd.simulation.attacks.run": ("AttackSettings",),
    "phonograd.simulation.empirical.pairs": ("PrivacySettings",),
    "phonograd.simulation.records": ("SimulationRecord",),
    "phonograd.simulation.settings": ("SimulationSettings",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if TYPE_CHECKING:
    from phonograd.api.administration import discard, models, report, rollback, round_report
    from phonograd.api.exporting import export_artifacts
    from phonograd.api.inspecting import inspect
    from phonograd.api.model import Model, evaluate, open_model
    from phonograd.api.predicting import open_predictor, predict, quantize
    from phonograd.api.pretraining import pretrain
    from phonograd.api.privacy import empirical_privacy, simulate_attacks
    from phonograd.api.rounds import JoinedRound, connect, download, join_round, pull, upload
    from phonograd.api.serving import RunningServer, start_server
    from phonograd.api.simulating import simulate
    from phonograd.api.training import ResumableState, Trained, train
    from phonograd.api.updates import EncodedUpdate, decode_update, encode_update, fold_updates, read_update
    from phonograd.device_runtime.base.errors import (
        ArtifactsError,
        BuildError,
        MissingExtraError,
        OutOfMemoryError,
        PhonogradError,
        ServerRefusedError,
        ServerUnreachableError,
        StateError,
        StoppedError,
        StorageError,
        TextError,
        TrainingError,
        UnsupportedError,
        UpdateError,
        UsageError,
        VocabularyError,
        WeightsError,
    )
    from phonograd.device_runtime.client.server_client import (
        Connection,
        CurrentRound,
        DownloadedModel,
        UploadReceipt,
        current_round,
    )
    from phonograd.device_runtime.engine.backend import BackendOptions
    from phonograd.device_runtime.engine.predictor import Predictor, Suggestion
    from phonograd.device_runtime.formats.manifest import Artifacts, TrainingConfig, open_artifacts
    from phonograd.device_runtime.formats.model_config import LanguageModelConfig
    from phonograd.device_runtime.text.evaluation import Evaluation
    from phonograd.device_runtime.text.vocabulary import Vocabulary
    from phonograd.device_runtime.training.report import EpochReport
    from phonograd.device_runtime.update.update_file import UpdateInfo
    from phonograd.export.pretrain_config import PretrainConfig, PretrainProgress, PretrainResult
    from phonograd.export.torch_layout import seeded_weights
    from phonograd.export.vocabulary_builder import CountedVocabulary, build_vocabulary
    from phonograd.server_agg.aggregation.settings import StrategySettings
    from phonograd.server_agg.server import ServerAddressError
    from phonograd.server_agg.settings.rules import RoundRules
    from phonograd.server_agg.settings.security import SecuritySettings
    from phonograd.server_agg.settings.server import ServerSettings
    from phonograd.server_agg.settings.storage import ServerStorage
    from phonograd.server_agg.transfer.settings import TransferSettings
    from phonograd.simulation.attacks.canaries import CanarySettings
    from phonograd.simulation.attacks.records import AttackRecord
    from phonograd.simulation.attacks.run import AttackSettings
    from phonograd.simulation.empirical.pairs import PrivacySettings
    from phonograd.simulation.records import SimulationRecord
    from phonograd.simulation.settings import SimulationSettings
else:

    def __getattr__(name):
        """Load a name of the API when it is first asked for."""
        if name not in _MODULE_OF:
            raise AttributeError(f"module 'phonograd' has no attribute {name!r}")
        value = getattr(import_module(_MODULE_OF[name]), name)
        globals()[name] = value
        return value
