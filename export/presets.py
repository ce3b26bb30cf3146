"""Named models: those of the papers this project reproduces, two for keyboards, and one small enough for tests.

Papers: P Popov et al., *Distributed Fine-tuning of Language Models on Private Data*; M McMahan et al., *Learning
Differentially Private Recurrent Language Models*; J Ji et al., *Learning Private Neural Language Modeling with
Attentive Aggregation*; H Hard et al., *Federated Learning for Mobile Keyboard Prediction*. Where a paper leaves a size
open, the preset's description says what is assumed here. The vocabulary's size can be replaced:
`msgspec.structs.replace(preset.model, vocabulary=len(vocabulary))`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from phonograd.device_runtime.base.errors import ArtifactsError
from phonograd.device_runtime.formats.model_config import LanguageModelConfig


@dataclass(frozen=True)
class Preset:
    """A model's shape and one line about where it comes from."""

    model: LanguageModelConfig
    description: str


def _ji_gru(size: int, tied: bool) -> Preset:
    return Preset(
        LanguageModelConfig("gru", vocabulary=10_000, embedding=size, hidden=size, layers=1, tied=tied),
        f"J: GRU of {size}, {'tied' if tied else 'untied'}; assumed: one layer and 10,000 words, as in their code",
    )


def _keyboard(hidden: int, embedding: int, size: str) -> Preset:
    return Preset(
        LanguageModelConfig("cifg", vocabulary=30_000, embedding=embedding, hidden=hidden, layers=1, tied=True),
        f"CIFG of {hidden} projected to {embedding}, tied, 30,000 words: below {size} in int8",
    )


PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "popov-2x650": Preset(
            LanguageModelConfig("lstm", vocabulary=30_000, embedding=650, hidden=650, layers=2),
            "P: 2 LSTM layers of 650, untied, 30,000 words; 45,800,400 parameters",
        ),
        "ptb-2x1500-tied": Preset(
            LanguageModelConfig("lstm", vocabulary=10_000, embedding=1500, hidden=1500, layers=2, tied=True),
            "P, Penn Treebank: 2 LSTM layers of 1500, tied, 10,000 words",
        ),
        # M gives the vocabulary, the shared embedding and 1.35 M parameters. 10,000 x 96, an LSTM of 256 on 96 and
        # the [96, 256] projection make 1,347,072; an output bias would make it 1.357 M.
        "mcmahan-10k": Preset(
            LanguageModelConfig(
                "lstm", vocabulary=10_000, embedding=96, hidden=256, layers=1, tied=True, output_bias=False
            ),
            "M: LSTM, tied, 10,000 words; assumed: hidden 256, embedding 96, a projection, no output bias (1.35 M)",
        ),
        # H gives all sizes and 1.4 M parameters; 1,414,260 with two biases a gate, as PyTorch has.
        "gboard-cifg": Preset(
            LanguageModelConfig(
                "cifg", vocabulary=10_000, embedding=96, hidden=670, layers=1, tied=True, output_bias=False
            ),
            "H: CIFG of 670 projected to 96, tied, 10,000 words; assumed: no output bias (1.4 M)",
        ),
        "keyboard-5mb": _keyboard(670, 128, "5 MB"),
        "keyboard-10mb": _keyboard(850, 256, "10 MB"),
        "fedatt-gru-300": _ji_gru(300, tied=False),
        "fedatt-gru-650": _ji_gru(650, tied=False),
        "fedatt-gru-1500": _ji_gru(1500, tied=False),
        "fedatt-gru-300-tied": _ji_gru(300, tied=True),
        "fedatt-gru-650-tied": _ji_gru(650, tied=True),
        "fedatt-gru-1500-tied": _ji_gru(1500, tied=True),
        "tiny": Preset(
            LanguageModelConfig("lstm", vocabulary=100, embedding=16, hidden=16, layers=2),
            "2 LSTM layers of 16, untied, 100 words: for tests and first tries",
        ),
    }
)


def preset_named(name: str) -> Preset:
    """The preset called `name`. Raises ArtifactsError, listing the names there are."""
    if name not in PRESETS:
        raise ArtifactsError(f"preset {name!r} is unknown; expected one of: {', '.join(PRESETS)}")
    return PRESETS[name]


def preset_of(model: LanguageModelConfig) -> str:
    """The name of the preset that has this shape, vocabulary included; else `custom` and its sizes."""
    for name, preset in PRESETS.items():
        if preset.model == model:
            return name
    tied = "tied" if model.tied else "untied"
    return (
        f"custom: {model.cell} {model.layers}x{model.hidden}, embedding {model.embedding}, {tied}, "
        f"{model.vocabulary} words"
    )
