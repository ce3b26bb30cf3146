"""Updates and links in NumPy, from FORMAT.md alone: what the native library's bytes are held to.

Whole tensors at a time and no file is checked, so that each rule takes a few lines.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from phonograd.device_runtime.base.documents import document_of
from phonograd.device_runtime.formats.tensor_file import CHECKSUM, Array, TensorFile, WrittenFile, save_tensors
from phonograd.device_runtime.update.seeds import seed_of
from phonograd.device_runtime.update.update_file import FORMAT, UpdateInfo
from tests.reference.random_words import inclusion_chances, stream_of, uniform, words_of

Parts = dict[str, Array]
BLOCK, WORD, ROTATIONS = 4096, 64, 3
LARGEST_DELTA = np.float32(2.0**100)
ROWS, ROW_BITS, WHOLE_BITS = 512, 1, 4  # of top-rows
HALVES = {
    1: (0.7978846,),
    2: (0.4527800, 1.5104176),
    4: (0.1283950, 0.3880483, 0.6567591, 0.9423404, 1.2562312, 1.6180464, 2.0690172, 2.7325895),
}
LEVELS = {bits: np.array([*(-level for level in reversed(half)), *half], "<f4") for bits, half in HALVES.items()}


def words(seed: int, name: str, count: int) -> Array:
    """The first words of a name's stream, uint64; those of `random_words.words_of`."""
    places = np.arange(1, count + 1, dtype=np.uint64)
    z = np.uint64(stream_of(seed, name).state) + places * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(z ^ (z >> np.uint64(31)))


# Rotation.


def sum_by_halves(values: Array) -> Array:
    """Sums of rows whose length is a power of two, float64."""
    while values.shape[1] > 1:
        half = values.shape[1] // 2
        values = values[:, :half] + values[:, half:]
    return values[:, 0]


def hadamard(x: Array) -> Array:
    """Transform each row, by butterflies of stride 64, 128, ..., then 1, 2, ... 32."""
    size = x.shape[1]
    large = [stride for stride in (64, 128, 256, 512, 1024, 2048) if stride < size]
    for stride in (*large, 1, 2, 4, 8, 16, 32):
        pairs = x.reshape(len(x), -1, 2, stride)
        x = np.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], 2).reshape(len(x), size)
    return x


def signs(name: str, number: int, seed: int, elements: int) -> Array:
    """1 or -1 for each element: of rotation 1, 2 or 3."""
    stream = name if number == 1 else f"{name}#{number}"
    bits = np.unpackbits(words(seed, stream, -(-elements // WORD)).view("u1"), bitorder="little")
    return np.where(bits, np.float32(-1), np.float32(1))


def blocks(elements: int) -> list[tuple[int, int]]:
    """Start and size of each block; the last one is padded."""
    whole = elements // BLOCK * BLOCK
    last = [(whole, max(WORD, 1 << (elements - whole - 1).bit_length()))] if elements > whole else []
    return [(start, BLOCK) for start in range(0, whole, BLOCK)] + last


def rotated_parts(name: str, values: Array, bits: int, seed: int, nearest: bool = False) -> Parts:
    """Scales and levels of float32 values [n]; nearest: the scales of least squares, as links have them."""
    scales, packed = [], [np.empty(0, "u1")]
    places = blocks(len(values))
    flips = [signs(name, number, seed, sum(size for _, size in places)) for number in range(1, ROTATIONS + 1)]
    levels = LEVELS[bits]
    thresholds = (levels[1:].astype(np.float64) + levels[:-1]) / 2
    for start, size in places:
        y = np.zeros((1, size), np.float32)
        y[0, : len(values) - start] = values[start : start + size]
        for flip in flips:
            y = hadamard(y * flip[start : start + size])
        wide = y.astype(np.float64)
        energy = sum_by_halves(wide * wide)[0]
        cuts = (thresholds * np.sqrt(energy / size)).astype(np.float32)
        numbers = (y[0][:, None] > cuts).sum(1)
        chosen = levels[numbers].astype(np.float64)[None]
        aligned, squares = sum_by_halves(wide * chosen)[0], sum_by_halves(chosen * chosen)[0]
        above, below = (aligned, squares) if nearest else (energy, aligned)
        scales.append(above / (below * float(size) ** ROTATIONS) if aligned > 0 else 0.0)
        each = numbers.reshape(-1, 8 // bits) << (np.arange(8 // bits) * bits)
        packed.append(each.sum(1).astype("u1"))
    return {f"{name}.scales": np.array(scales, "<f4"), f"{name}.levels": np.concatenate(packed)}


def rotated_values(name: str, elements: int, parts: Mapping[str, Array], seed: int) -> Array:
    """What `rotated_parts` stands for, float32 [n]."""
    packed, places = parts[f"{name}.levels"], blocks(elements)
    padded = sum(size for _, size in places)
    bits = 8 * len(packed) // padded if padded else 1
    numbers = (packed[:, None] >> (np.arange(8 // bits) * bits)).reshape(-1) & ((1 << bits) - 1)
    flips = [signs(name, number, seed, padded) for number in range(1, ROTATIONS + 1)]
    values = np.empty(padded, np.float32)
    for (start, size), scale in zip(places, parts[f"{name}.scales"], strict=True):
        x = LEVELS[bits][numbers[start : start + size]][None]
        for flip in reversed(flips):
            x = hadamard(x) * flip[start : start + size]
        values[start : start + size] = x[0] * scale
    return values[:elements]


# Rows.


def deltas(base: Array, trained: Array) -> Array:
    """float32 [rows, row]."""
    with np.errstate(over="ignore"):
        moved = np.clip(trained - base, -LARGEST_DELTA, LARGEST_DELTA)
    return moved.reshape(-1, base.shape[-1]) if base.size else moved.reshape(0, base.shape[-1])


def mask(name: str, rows: Array, count: int) -> Parts:
    """The part of the rows that are sent."""
    if len(rows) == count:
        return {}
    return {f"{name}.rows": np.packbits(np.isin(np.arange(count), rows), bitorder="little")}


def masked_rows(name: str, parts: Mapping[str, Array], count: int) -> Array:
    """The numbers of the rows that are sent."""
    if f"{name}.rows" not in parts:
        return np.arange(count)
    return np.flatnonzero(np.unpackbits(parts[f"{name}.rows"], bitorder="little"))


def row_norms(rows: Array) -> Array:
    """float64, by the sum of halves of the padded squares."""
    width = 1 << max(0, rows.shape[1] - 1).bit_length()
    return np.sqrt(sum_by_halves(np.pad(np.square(rows.astype(np.float64)), ((0, 0), (0, width - rows.shape[1])))))


def draw_rows(norms: Array, most: int, start: float) -> tuple[Array, Array]:
    """Numbers of the rows drawn, and their chances."""
    moved = np.flatnonzero(norms)
    if len(moved) <= most:
        return moved, np.ones(len(moved))
    chances = np.zeros(len(norms))
    chances[moved] = inclusion_chances(norms[moved].tolist(), most)
    drawn = np.flatnonzero(np.diff(np.floor(np.cumsum(chances) + start), prepend=0.0))
    return drawn, chances[drawn]


# The codecs: parts of one tensor, and what they are added to or replace.


def encode_full(name: str, base: Array, trained: Array, seed: int) -> Parts:
    del base, seed
    return {name: trained}


def encode_rows(name: str, base: Array, trained: Array, seed: int) -> Parts:
    del seed
    old, new = (array.reshape(-1, base.shape[-1]) for array in (base, trained))
    rows = np.flatnonzero((old.view("<u4") != new.view("<u4")).any(axis=1)).astype("<u4")
    if len(rows) * (4 + 4 * base.shape[-1]) >= base.nbytes:
        return {name: trained}
    return {f"{name}.rows": rows, f"{name}.values": new[rows]}


def encode_f16(name: str, base: Array, trained: Array, seed: int) -> Parts:
    del seed
    return _moved_rows(name, deltas(base, trained), lambda moved: np.clip(moved, -65504, 65504).astype("<f2"))


def encode_bf16(name: str, base: Array, trained: Array, seed: int) -> Parts:
    def round_half(moved: Array) -> Array:
        bits = moved.view("<u4")
        upper = (bits + (0x7FFF + (bits >> 16 & 1))) >> 16
        return np.asarray(np.minimum(upper & 0x7FFF, 0x7F7F) | upper & 0x8000).astype("<u2")

    del seed
    return _moved_rows(name, deltas(base, trained), round_half)


def _moved_rows(name: str, moved: Array, encode: Callable[[Array], Array]) -> Parts:
    rows = np.flatnonzero(moved.any(axis=1))
    return {**mask(name, rows, len(moved)), f"{name}.values": encode(moved[rows])} if len(rows) else {}


def encode_int8(name: str, base: Array, trained: Array, seed: int) -> Parts:
    moved = deltas(base, trained)
    scales = np.abs(moved).max(axis=1, initial=0) / np.float32(127)
    rows = np.flatnonzero(scales)
    if not len(rows):
        return {}
    count = len(rows) * moved.shape[1]
    lanes = words(seed, name, -(-count // 4)).view("<u2")[:count].reshape(len(rows), -1)
    uniform = (lanes.astype(np.float32) + np.float32(0.5)) * np.float32(2**-16)
    values = np.clip(np.floor(moved[rows] / scales[rows, None] + uniform), -127, 127).astype("i1")
    return {**mask(name, rows, len(moved)), f"{name}.scales": scales[rows], f"{name}.values": values}


def encode_rotated(bits: int) -> "Encode":
    def encode(name: str, base: Array, trained: Array, seed: int) -> Parts:
        return rotated_parts(name, deltas(base, trained).reshape(-1), bits, seed)

    return encode


def encode_top_rows(name: str, base: Array, trained: Array, seed: int, most: int = ROWS, bits: int = ROW_BITS) -> Parts:
    """The sender chooses how many rows it sends, and the bits of a weight."""
    moved = deltas(base, trained)
    if not moved.any():
        return {}
    if len(moved) == 1 or moved.size <= BLOCK:
        return rotated_parts(name, moved.reshape(-1), WHOLE_BITS, seed)
    rows, chances = draw_rows(row_norms(moved), most, uniform(words_of(seed, f"{name}.rows", 1)[0]))
    values = (moved[rows] / chances[:, None]).astype(np.float32)
    return {**mask(name, rows, len(moved)), **rotated_parts(name, values.reshape(-1), bits, seed)}


Encode = Callable[[str, Array, Array, int], Parts]
ENCODERS: Mapping[str, Encode] = {
    "full-f32": encode_full,
    "rows-f32": encode_rows,
    "delta-f16": encode_f16,
    "delta-bf16": encode_bf16,
    "delta-int8": encode_int8,
    **{f"rot-q{bits}": encode_rotated(bits) for bits in (4, 2, 1)},
    "top-rows": encode_top_rows,
}


def decode(codec: str, name: str, base: Array, parts: Mapping[str, Array], seed: int) -> Array:
    """The trained tensor."""
    trained = base.reshape(-1, base.shape[-1]).copy()
    values, levels = parts.get(f"{name}.values"), f"{name}.levels" in parts
    if name in parts:
        return parts[name]
    if codec == "rows-f32":
        trained[parts[f"{name}.rows"]] = values
    if codec == "rows-f32" or (values is None and not levels):
        return trained.reshape(base.shape)
    rows = masked_rows(name, parts, len(trained))
    if levels:
        moved = rotated_values(name, len(rows) * base.shape[-1], parts, seed).reshape(-1, base.shape[-1])
    elif codec == "delta-bf16":
        moved = (np.asarray(values).astype("<u4") << 16).view("<f4")
    else:
        moved = np.asarray(values).astype(np.float32)
        moved *= parts[f"{name}.scales"][:, None] if codec == "delta-int8" else np.float32(1)
    total = trained[rows] + moved
    trained[rows] = np.where(total == trained[rows], trained[rows], total)
    return trained.reshape(base.shape)


# Files.


def trained_names(file: TensorFile) -> list[str]:
    """The tensors that are not frozen."""
    frozen = file.metadata.get("frozen", "").split(",")
    return [name for name in file.specs if name not in frozen]


def metadata_of(info: UpdateInfo) -> dict[str, str]:
    """An update's metadata."""
    facts = {name: str(value) for name, value in document_of(info).items() if value is not None}
    return {"format": FORMAT, "version": "3", **facts}


def write_update(path: Path, base: TensorFile, trained: Mapping[str, Array], info: UpdateInfo) -> WrittenFile:
    """An update's file."""
    parts: Parts = {}
    for name in trained_names(base):
        parts |= ENCODERS[info.codec](name, base.read(name), np.asarray(trained[name]), info.seed)
    return save_tensors(path, parts, metadata_of(info), checksum=True)


def read_parts(path: Path) -> tuple[Parts, dict[str, str]]:
    """The parts of an update or link without its checksum, and its metadata."""
    with TensorFile(path) as file:
        return {name: file.read(name) for name in file.specs if name != CHECKSUM}, dict(file.metadata)


def decode_file(path: Path, base: TensorFile) -> Parts:
    """The trained weights that an update or link stands for."""
    parts, about = read_parts(path)
    changed = trained_names(base)
    return {
        name: decode(about["codec"], name, base.read(name), parts, int(about["seed"]))
        if name in changed
        else base.read(name)
        for name in base.specs
    }


# Links.


def link_metadata(
    base_sha256: str, round_number: int, codec: str, result_sha256: str, result: Mapping[str, str]
) -> dict[str, str]:
    """result: the metadata of the model that it leads to."""
    info = UpdateInfo(base_sha256, round_number, 1, codec, seed_of(base_sha256, round_number, "*"))
    of_result = {f"result.{key}": value for key, value in result.items()}
    return {**metadata_of(info), "result_sha256": result_sha256, **of_result}


def write_link(
    path: Path,
    model: Path,
    base: Path,
    parts: Mapping[str, Array],
    codec: str,
    round_number: int,
    result: dict[str, str],
) -> WrittenFile:
    """A link with these parts, and the model that it leads to, at `model`, whose size and hash are returned."""
    with TensorFile(base) as file:
        base_sha256 = file.sha256()
        save_tensors(path, parts, link_metadata(base_sha256, round_number, codec, "", result), checksum=True)
        written = save_tensors(model, decode_file(path, file), result)
    save_tensors(path, parts, link_metadata(base_sha256, round_number, codec, written.sha256, result), checksum=True)
    return written


def lossy_link_parts(
    names: Sequence[str], base: Mapping[str, Array], wanted: Mapping[str, Array], rows: int, bits: int, seed: int
) -> Parts:
    """The `rows` rows of largest delta of all matrices together, other tensors whole. wanted: float64."""
    moved = {
        name: np.clip(wanted[name] - base[name].astype(np.float64), -LARGEST_DELTA, LARGEST_DELTA)
        .astype(np.float32)
        .reshape(-1, base[name].shape[-1])
        for name in names
    }
    matrices = [name for name in names if len(moved[name]) > 1 and moved[name].size > BLOCK]
    kept = _largest({name: row_norms(moved[name]) for name in matrices}, rows)
    parts: Parts = {}
    for name in names:
        some = moved[name] if name not in matrices else moved[name][kept[name]]
        if some.any():
            if name in matrices:
                parts |= mask(name, kept[name], len(moved[name]))
            width = bits if name in matrices else WHOLE_BITS
            parts |= rotated_parts(name, some.reshape(-1), width, seed, nearest=True)
    return parts


def _largest(norms: Mapping[str, Array], most: int) -> dict[str, Array]:
    every = [
        (-norm, place, row) for place, name in enumerate(norms) for row, norm in enumerate(norms[name]) if norm > 0
    ]
    chosen: Iterable[tuple[float, int, int]] = sorted(every)[:most]
    picked = {(place, row) for _, place, row in chosen}
    return {
        name: np.array(sorted(row for at, row in picked if at == place), np.int64) for place, name in enumerate(norms)
    }
