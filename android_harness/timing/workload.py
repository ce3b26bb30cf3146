"""What the phones train on: a user's text, or a synthetic stream of tokens that costs as much."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from phonograd.android_harness.result import Workload
from phonograd.android_harness.session.settings import TRANSIENT_FOLDER
from phonograd.android_harness.timing.settings import TextSettings
from phonograd.device_runtime.base.errors import TextError
from phonograd.device_runtime.base.files import sha256_of_file, write_bytes
from phonograd.device_runtime.formats.manifest import MANIFEST, VOCABULARY, Artifacts, Manifest
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.text.messages import read_messages
from phonograd.device_runtime.text.rehearsal import mix
from phonograd.device_runtime.text.vocabulary import Ids, Vocabulary

# 20 windows of paper P's 10 x 20 tokens are about 20 KB of text, its epoch on the phone.
WINDOWS = 20
# Texts that people wrote never stay on the phone, even with --keep.
TOKENS, USER, REHEARSAL = "tokens.bin", f"{TRANSIENT_FOLDER}/user.txt", f"{TRANSIENT_FOLDER}/rehearsal.txt"


@dataclass(frozen=True)
class PhoneText:
    """The text's files by their name on the phone, options of `phonograd-phone train` for them, and a description."""

    files: dict[str, Path]
    options: tuple[str, ...]
    tokens: int
    description: str


def zipf_tokens(vocabulary: int, tokens: int, seed: int) -> Ids:
    """Ids [tokens] int64, drawn with probability proportional to 1/rank; words get their ranks at random.

    An epoch's time depends on the number of tokens and on how often words repeat, not on their meaning.
    """
    random = np.random.default_rng(seed)
    weights = 1.0 / np.arange(1, vocabulary + 1)
    ranks = random.choice(vocabulary, size=tokens, p=weights / weights.sum())
    return random.permutation(vocabulary)[ranks]


def prepare_text(settings: TextSettings, artifacts: Artifacts, scratch: Path) -> PhoneText:
    """Prepare the text of `settings`; generated files are written into `scratch`.

    Raises TextError for a text that is missing, empty or shorter than one window, VocabularyError, StorageError.
    """
    if settings.user is None:
        return _synthetic(settings.seed, artifacts.manifest, scratch)
    vocabulary = Vocabulary.load(artifacts.path(VOCABULARY), artifacts.manifest.model.vocabulary)
    general = read_messages(settings.rehearsal) if settings.rehearsal else []
    text = mix(read_messages(settings.user), general, settings.share, vocabulary, settings.seed)
    training = artifacts.manifest.training
    window = training.minibatch * training.bptt
    if len(text.stream) < window:
        raise TextError(
            f"{settings.user}: {len(text.stream)} tokens, expected at least one window of {window}; give more text"
        )
    files, options = {USER: settings.user}, ["--user", USER, "--seed", str(settings.seed)]
    description = f"{settings.user.name}: {text.user_tokens:,} tokens of the user's"
    if settings.rehearsal:
        files[REHEARSAL] = settings.rehearsal
        options += ["--rehearsal", REHEARSAL, "--user-share", repr(settings.share)]
        description += f" and {text.general_tokens:,} of {settings.rehearsal.name}, seed {settings.seed}"
    return PhoneText(files, tuple(options), len(text.stream), description)


def _synthetic(seed: int, manifest: Manifest, scratch: Path) -> PhoneText:
    tokens = WINDOWS * manifest.training.minibatch * manifest.training.bptt
    path = scratch / "tokens.bin"
    write_bytes(path, zipf_tokens(manifest.model.vocabulary, tokens, seed).astype("<i4").tobytes())
    description = f"synthetic: {WINDOWS} windows, {tokens:,} tokens drawn by Zipf's law (1/rank), seed {seed}"
    return PhoneText({TOKENS: path}, ("--tokens", TOKENS, "--seed", str(seed)), tokens, description)


def describe_workload(artifacts: Artifacts, text: PhoneText) -> Workload:
    """The report's description of what is trained."""
    manifest = artifacts.manifest
    return Workload(
        manifest_sha256=sha256_of_file(artifacts.path(MANIFEST)),
        model=describe_model(manifest.model),
        parameters=manifest.model.parameters,
        minibatch=manifest.training.minibatch,
        bptt=manifest.training.bptt,
        tokens=text.tokens,
        text=text.description,
    )


def describe_model(model: LanguageModelConfig) -> str:
    """Describe a model like "2 LSTM layers of 650, embedding 650, 30,000 words, untied"."""
    layers = f"{model.layers} {model.cell.upper()} layer{'s' if model.layers > 1 else ''} of {model.hidden}"
    tied = "tied" if model.tied else "untied"
    return f"{layers}, embedding {model.embedding}, {model.vocabulary:,} words, {tied}"
