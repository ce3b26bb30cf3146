"""What a model's tensors are called: without those of others, renamed, without the modules that the model lies in."""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from phonograd.device_runtime.base.errors import WeightsError
from phonograd.export.state_dict import StateDict

Renames = Sequence[tuple[str, str]]

RECURRENT = ("rnn", "rnns", "lstm", "lstms", "gru", "grus", "cifg")
MODULES = ("encoder", "embedding", *RECURRENT, "projection", "decoder")  # the parts of a model, by name
# How the names begin that others usually give them.
USUAL_NAMES = {
    "encoder": ("emb", "word_emb", "wte"),
    "decoder": ("lm_head", "head", "out", "fc", "linear", "classifier"),
}
# What DataParallel, compile, FSDP and activation checkpoints put before the names of a module that they wrap.
WRAPPERS = ("module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")


def our_names(state: StateDict, renames: Renames = (), ignore: Sequence[str] = ()) -> tuple[StateDict, list[str]]:
    """The model's tensors by their names in it, and remarks on what was done.

    ignore: globs of tensors to leave out, by their names in the file or in the model. renames: each (OLD, NEW), in
    order, for a tensor called OLD and all whose names begin with `OLD.`; NEW may be empty. What stands before the
    model's parts, such as `module.` of DataParallel, is left out by itself. Raises WeightsError for an OLD that nothing
    is called by, for two tensors that would get one name, and for two models.
    """
    names = {name: name for name in state.specs if not _matches(name, ignore)}
    for old, new in renames:
        changed = {name: _rename(now, old.rstrip("."), new.rstrip(".")) for name, now in names.items()}
        if changed == names and old.rstrip(".") != new.rstrip("."):
            raise WeightsError(f"{state.source}: {old} to rename expected, found {state.rename(names).listing()}")
        names = changed
    names, remarks = _in_the_model(names, state.source)
    names = {name: now for name, now in names.items() if not _matches(now, ignore)}
    seen: dict[str, str] = {}
    for name, now in names.items():
        if not now or now in seen:
            other = f" and {seen[now]}" if now else ""
            raise WeightsError(
                f"{state.source}: {name}{other} would be called {now!r}; choose another of `renames`, or leave one out "
                "with `ignore`"
            )
        seen[now] = name
    if left := [name for name in state.specs if name not in names]:
        remarks.append(f"left out: {', '.join(left)}")
    return state.rename(names), remarks


def usual_renames(names: Iterable[str]) -> list[str]:
    """Renames, OLD=NEW, of modules that go by a usual name, and of the recurrent layers, told by their tensors."""
    renames = {}
    for module, _, tensor in (name.rpartition(".") for name in names):
        part = module.rpartition(".")[2]
        likely = [ours for ours, usual in USUAL_NAMES.items() if part.startswith(usual)]
        if part not in MODULES and (tensor == "weight_hh_l0" or likely):
            renames[module] = "rnn" if tensor == "weight_hh_l0" else likely[0]
    return [f"{old}={new}" for old, new in renames.items()]


def _matches(name: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


def _rename(name: str, old: str, new: str) -> str:
    if name == old:
        return new
    if not name.startswith(f"{old}."):
        return name
    rest = name.removeprefix(f"{old}.")
    return f"{new}.{rest}" if new else rest


def _in_the_model(names: dict[str, str], source: str) -> tuple[dict[str, str], list[str]]:
    """Names below the place of the recurrent layers; those of tensors elsewhere stay. A remark if any changed."""
    split = {name: _split(now) for name, now in names.items()}
    recurrent = [place for place, inside in split.values() if inside.partition(".")[0] in RECURRENT]
    places = sorted({place for place in recurrent if place is not None})
    if len(places) > 1:
        raise WeightsError(
            f"{source}: one model expected, found recurrent layers in {places[0] or 'the file'} and in {places[1]}; "
            f"leave one out with `ignore`, such as '{places[1]}.*'"
        )
    inner = {name: split[name][1] if [split[name][0]] == places else now for name, now in names.items()}
    changed = next((f"{now} is read as {inner[name]}" for name, now in names.items() if now != inner[name]), None)
    return inner, [f"{changed}, others likewise"] if changed else []


def _split(name: str) -> tuple[str | None, str]:
    """The place of the model in the file, less an index in an nn.Sequential, and the tensor's name in the model.

    The place is None for a tensor of none of the model's parts.
    """
    parts = name.split(".")
    at = next((index for index, part in enumerate(parts) if part in MODULES), None)
    if at is None:
        return None, name
    place = parts[: at - 1] if at and parts[at - 1].isdigit() else parts[:at]
    return ".".join(place), ".".join(part for part in parts[at:] if part not in WRAPPERS)
