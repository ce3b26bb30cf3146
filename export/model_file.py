"""A user's own model: which LSTM, GRU or CIFG a state dict is of, told from names and shapes; its weights in ours.

The names are those of PyTorch's word_language_model example (`encoder.weight`, `rnn.weight_ih_l0`, ...,
`decoder.weight`, `decoder.bias`), or ours: `embedding.` for `encoder.`, `lstm.` or `gru.` for `rnn.`, or the layout of
`weights.safetensors`. A CIFG has our names alone (`torch_cifg`).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np

from phonograd.device_runtime.base.errors import UsageError, WeightsError
from phonograd.device_runtime.formats.model_config import GATES, Cell, LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import Array, TensorSpec, check_specs
from phonograd.device_runtime.text.vocabulary import Ids, Vocabulary
from phonograd.export.layouts import in_our_layout, refuse_other_kinds
from phonograd.export.state_dict import StateDict, open_state_dict
from phonograd.export.tensor_names import MODULES, Renames, our_names, usual_renames
from phonograd.export.torch_layout import VOCABULARY_SHA256, to_canonical, torch_specs, vocabulary_sha256

_RECURRENT = re.compile(r"(?:weight|bias)_(?:ih|hh|hr)_l(\d+)\Z")
_CANONICAL = re.compile(r"(lstm|gru|cifg)\.(\d+)\.[WRBP]\Z")
EXAMPLE = (
    "encoder.weight [V, E]; rnn.weight_ih_l0 and rnn.weight_hh_l0 of 4H rows (LSTM) or 3H (GRU), their biases, and so "
    "on for each layer; decoder.weight [V, H], decoder.bias [V]"
)


@dataclass(frozen=True)
class ModelOfStateDict:
    """A model as its state dict has it: its shape, canonical float32 weights, and remarks on what was done to them.

    rows: of each word [V] int64, the row that the state dict has it in; None: the same.
    """

    config: LanguageModelConfig
    weights: dict[str, Array]
    remarks: tuple[str, ...]
    rows: Ids | None = None


@dataclass(frozen=True)
class Spelling:
    """What a state dict calls the embedding and the recurrent layers; in our own layout, the cell's name is both."""

    embedding: str
    recurrent: str
    canonical: bool

    @classmethod
    def of(cls, state: StateDict) -> "Spelling":
        """How `state` spells them; as PyTorch's example does, where it has neither."""
        names = state.specs
        own = next((match[1] for match in map(_CANONICAL.match, names) if match), None)
        module = next(
            (module for module in ("rnn", *GATES) if any(name.startswith(f"{module}.") for name in names)), "rnn"
        )
        canonical = own is not None
        encoder = "encoder.weight" in names or not (canonical or "embedding.weight" in names)
        return cls("encoder" if encoder else "embedding", own or module, canonical)

    def specs(self, config: LanguageModelConfig) -> dict[str, TensorSpec]:
        """The tensors of `config`, by our names of them, as this spelling has them."""
        ours = config.plain.tensor_specs() if self.canonical else torch_specs(config)
        return {spec.name: replace(spec, name=self.spelt(spec.name, config.cell)) for spec in ours}

    def spelt(self, name: str, cell: Cell) -> str:
        """A tensor of ours, as this spelling has it. A module named after the other cell is not this one's."""
        first, _, rest = name.partition(".")
        if first == "embedding":
            return f"{self.embedding}.{rest}"
        if first == cell and self.recurrent == "rnn":
            return f"rnn.{rest}"
        return name


def load_weights(path: Path, config: LanguageModelConfig, vocabulary: Vocabulary | None = None) -> dict[str, Array]:
    """Canonical float32 weights of a model of this shape; see load_model."""
    return load_model(path, vocabulary, declared=config).weights


def load_model(
    path: Path,
    vocabulary: Vocabulary | None = None,
    renames: Renames = (),
    declared: LanguageModelConfig | None = None,
    ignore: Sequence[str] = (),
    key: str | None = None,
) -> ModelOfStateDict:
    """The model that a PyTorch or safetensors file holds, in F32, F16 or BF16; of the `declared` shape if there is one.

    With `vocabulary`, a file whose metadata names the vocabulary it was trained with must name that one. renames,
    ignore: see `our_names`; key: see `StateDict.of`. Raises WeightsError: not such a file, other names, shapes or
    dtypes than the model's, NaN or infinite values.
    """
    with open_state_dict(path, key) as opened:
        if vocabulary is not None:
            _check_vocabulary(opened, vocabulary)
        return own_model(opened, renames, declared, ignore)


def own_model(
    opened: StateDict,
    renames: Renames = (),
    declared: LanguageModelConfig | None = None,
    ignore: Sequence[str] = (),
) -> ModelOfStateDict:
    """The model that a state dict is of. Raises WeightsError, naming what was expected and all that was found."""
    state, remarks = our_names(opened, renames, ignore)
    refuse_other_kinds(state)
    state, changes = in_our_layout(state)
    remarks += changes
    config = declared or _config_of(state, Spelling.of(state))
    stored_twice = config.tied and "decoder.weight" in state.specs
    if stored_twice:
        remarks.append("decoder.weight equals the embedding: the model is tied, and stores it once")
    weights = _weights(state, config, "read as" if declared is None else "asked for")
    odd = sorted({spec.dtype for spec in state.specs.values()} - {"F32"})
    if odd:
        remarks.append(f"converted from {' and '.join(odd)} to float32")
    return ModelOfStateDict(config, weights, tuple(f"{opened.source}: {remark}" for remark in remarks))


def _config_of(state: StateDict, spelling: Spelling) -> LanguageModelConfig:
    """Cell and sizes by the shapes of the embedding and of the first recurrent layer; the rest is checked later."""
    _refuse_unknown_kinds(state, spelling)
    table = state.specs.get(f"{spelling.embedding}.weight")
    first = state.specs.get(_hidden_weights(spelling, 0))
    if table is None or first is None or len(table.shape) != 2 or len(first.shape) != (3 if spelling.canonical else 2):
        likely = " ".join(f"`renames` {one}" for one in usual_renames(state.specs))
        raise WeightsError(
            f"{state.source}: a word-level LSTM or GRU expected: {EXAMPLE}; found {state.listing()}; export it "
            f"with {likely or 'other names, by `renames`, OLD=NEW'}"
        )
    hidden = first.shape[-2] // GATES["cifg"] if spelling.recurrent == "cifg" else first.shape[-1]
    cell = _cell_of(state, spelling, first)
    decoder = state.specs.get("decoder.weight")
    try:
        sizes = LanguageModelConfig(
            cell=cell,
            vocabulary=table.shape[0],
            embedding=table.shape[1],
            hidden=hidden,
            layers=_layers_of(state, spelling, cell),
            tied=decoder is None,
            output_bias="decoder.bias" in state.specs,
        )
    except ValueError as error:
        raise WeightsError(f"{state.source}: {error}") from error
    if decoder is not None and decoder.shape == table.shape:
        tied = np.array_equal(state.read("decoder.weight"), state.read(table.name))
        return msgspec.structs.replace(sizes, tied=tied or "projection.weight" in state.specs)
    return sizes


def _refuse_unknown_kinds(state: StateDict, spelling: Spelling) -> None:
    for name in state.specs:
        if not name.startswith(f"{spelling.recurrent}."):
            continue
        if name.endswith("_reverse"):
            raise WeightsError(
                f"{state.source}: one direction expected, as what predicts the next word can't have seen it; found "
                f"{name}; train the model with bidirectional=False"
            )
        if "weight_hr_l" in name and spelling.recurrent != "cifg":
            raise WeightsError(
                f"{state.source}: an LSTM whose weights read its proj_size expected, found {name} "
                f"{list(state.specs[name].shape)} beside others; found in all: {state.listing()}"
            )


def _hidden_weights(spelling: Spelling, layer: int) -> str:
    own = f"{spelling.recurrent}.{layer}.R"
    return own if spelling.canonical else f"{spelling.recurrent}.weight_hh_l{layer}"


def _cell_of(state: StateDict, spelling: Spelling, weights: TensorSpec) -> Cell:
    rows, hidden = weights.shape[-2:]
    if spelling.recurrent == "cifg":
        return "cifg"  # whose projections' sizes are checked with all others
    for cell, gates in GATES.items():
        if rows == gates * hidden and spelling.recurrent in ("rnn", cell):
            return cell
    kind = "a plain RNN's" if rows == hidden else "neither's"
    if spelling.recurrent in GATES:
        expected = f"{GATES[spelling.recurrent] * hidden} rows"
    else:
        expected = f"{4 * hidden} rows of an LSTM or {3 * hidden} of a GRU"
    raise WeightsError(
        f"{state.source}: {weights.name} with {expected} expected, for a hidden size of {hidden}; found "
        f"{list(weights.shape)}, {kind}; found in all: {state.listing()}"
    )


def _layers_of(state: StateDict, spelling: Spelling, cell: Cell) -> int:
    """Count layers by the highest number in a recurrent tensor. Raises WeightsError for a layer of another cell."""
    numbers = [0]
    for name in state.specs:
        module, _, rest = name.partition(".")
        if module == spelling.recurrent:
            match = _CANONICAL.match(name) if spelling.canonical else _RECURRENT.match(rest)
            numbers += [int(match[match.lastindex or 0])] if match else []
    layers = min(1 + max(numbers), len(state.specs))  # numbers far too high are refused with the tensor's name
    for layer in range(layers):
        spec = state.specs.get(_hidden_weights(spelling, layer))
        rows, hidden = (*spec.shape[-2:], 0, 0)[:2] if spec else (0, 0)
        others = [other for other in ("lstm", "gru") if other != cell and rows == GATES[other] * hidden > 0]
        if spec and others and cell != "cifg":
            raise WeightsError(
                f"{state.source}: one kind of cell in all layers expected, found {cell} in layer 0 and {others[0]} in "
                f"layer {layer}, {spec.name} {list(spec.shape)}; train a model of one kind"
            )
    return layers


def _weights(state: StateDict, config: LanguageModelConfig, which: str) -> dict[str, Array]:
    spelling = Spelling.of(state)
    specs = spelling.specs(config)
    if config.tied and "decoder.weight" in state.specs and not spelling.canonical:
        specs["decoder.weight"] = TensorSpec("decoder.weight", "F32", (config.vocabulary, config.embedding))
    # What is not a float is refused as it is read.
    weights = {name: replace(spec, dtype="F32") for name, spec in state.specs.items()}
    try:  # the names and shapes before 180 MB are read
        check_specs(state.source, weights, specs.values())
    except WeightsError as error:
        others = {name: name for name in weights if name not in {spec.name for spec in specs.values()}}
        advice = _advice(state, config)
        if others:
            unread = state.rename(others).listing()
            places = {place: place.rpartition(".") for place in (name.rpartition(".")[0] for name in others)}
            parts = [f"{place}={part}" for place, (above, _, part) in places.items() if above and part in MODULES]
            advice = f"export it without what scores don't need, by `ignore`, or {advice}"
            parts += usual_renames(others)
            missing = [spec for spec in specs.values() if spec.name not in weights]
            if config.tied:  # or what looks so, as its output layer has another name
                missing.append(TensorSpec("decoder.weight", "F32", (config.vocabulary, config.hidden)))
            parts += _likely_renames(missing, others, weights)
            if parts:  # a part of the model that lies elsewhere: without it, another model would be exported
                advice = f"export it with `renames` {parts[0]}, where a part of the model is"
            advice = f"not understood: {unread}; {advice}"
        raise WeightsError(f"{error}; {which}: {describe_shape(config)}; found: {state.listing()}; {advice}") from None
    tensors = {ours: state.read(spec.name) for ours, spec in specs.items()}
    if spelling.canonical:
        return {spec.name: tensors[spec.name] for spec in config.plain.tensor_specs()}
    return to_canonical(tensors, config, state.source)


def _likely_renames(missing: Sequence[TensorSpec], unread: Iterable[str], found: Mapping[str, TensorSpec]) -> list[str]:
    """Renames, OLD=NEW, of modules that are not read, whose tensors have the shapes of those that are missing."""
    pairs = ((other, spec) for spec in missing for other in unread if found[other].shape == spec.shape)
    modules = ((other.rpartition("."), spec.name.rpartition(".")) for other, spec in pairs)
    return [f"{old}={new}" for (old, _, tensor), (new, _, wanted) in modules if old and tensor == wanted]


def _advice(state: StateDict, config: LanguageModelConfig) -> str:
    if config.tied and not config.projected and "projection.weight" in state.specs:
        return "a projection stands in tied models only whose hidden and embedding sizes differ"
    return "export it with other names, by `renames`, OLD=NEW; a model that computes more than these can't be exported"


def tensors_named(config: LanguageModelConfig, names: Iterable[str]) -> tuple[str, ...]:
    """The tensors, in file order, that `names` stand for: a tensor of weights.safetensors, or all below a dotted name.

    `encoder` and `rnn` stand for `embedding` and the cell. Raises UsageError for a name of none, listing those there
    are.
    """
    known = [spec.name for spec in config.tensor_specs()]
    chosen: set[str] = set()
    for name in names:
        first, dot, rest = name.partition(".")
        ours = {"encoder": "embedding", "rnn": config.cell}.get(first, first) + dot + rest
        below = [tensor for tensor in known if tensor == ours or tensor.startswith(f"{ours}.")]
        if not below:
            raise UsageError(f"tensor {name}: one of {', '.join(known)} expected, or what some of them begin with")
        chosen.update(below)
    return tuple(name for name in known if name in chosen)


def describe_shape(config: LanguageModelConfig) -> str:
    """A shape in one line: lstm 2x300, embedding 300, tied, 10000 words."""
    parts = [f"{config.cell} {config.layers}x{config.hidden}", f"embedding {config.embedding}"]
    parts += ["tied" if config.tied else "untied", f"{config.vocabulary} words"]
    return ", ".join(parts if config.output_bias else [*parts, "no output bias"])


def _check_vocabulary(state: StateDict, vocabulary: Vocabulary) -> None:
    expected, found = vocabulary_sha256(vocabulary), state.metadata.get(VOCABULARY_SHA256)
    if found is not None and found != expected:
        raise WeightsError(
            f"{state.source}: trained with the vocabulary of SHA-256 {found[:12]}…, found {vocabulary.source} with "
            f"{expected[:12]}…; give the vocabulary it was trained with"
        )
