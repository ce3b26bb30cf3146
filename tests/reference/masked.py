"""Masked rounds in plain Python, from FORMAT.md alone: what a cohort agrees on, masks, shares, and the sum.

`Cohort` and `Sum` do what pg_cohort and pg_sum do, so that a server can be tested with either.
"""

import functools
import itertools
import json
import math
from collections.abc import Collection, Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from phonograd.device_runtime.base.errors import UpdateError, UsageError
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, save_tensors
from phonograd.device_runtime.masked.cohort import About, Fixed, Unmasked
from tests.reference.codecs import hadamard, words
from tests.reference.random_words import SplitMix64

ROWS, ALL, KEY_FIELDS = 4096, 50, ("identity", "sealing", "masking")
Message = Mapping[str, Any]


def require(good: bool, reason: str) -> None:
    if not good:
        raise UpdateError(reason)


# Hashes, keys, streams.


def hash_of(*parts: str) -> str:
    """Hash the parts, each a line."""
    return sha256("".join(f"{part}\n" for part in parts).encode()).hexdigest()


def lines(*parts: str) -> bytes:
    return "".join(f"{part}\n" for part in parts).encode()


@functools.lru_cache(100_000)
def signed_by(key: str, signature: str, text: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(bytes.fromhex(signature), text)
    except (InvalidSignature, ValueError):
        return False
    return True


def public_of(secret: bytes) -> str:
    """Public half of an X25519 key, hex."""
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw().hex()


def agree(secret: bytes, public: str) -> bytes:
    return X25519PrivateKey.from_private_bytes(secret).exchange(
        X25519PublicKey.from_public_bytes(bytes.fromhex(public))
    )


def derive(secret: bytes, cohort: str, *info: str) -> bytes:
    return HKDF(SHA256(), 32, bytes.fromhex(cohort), lines(*info)).derive(secret)


def stream(key: bytes, width: int, count: int) -> Array:
    """`count` words of a mask, uint32."""
    size = 2 if width <= 16 else 4
    nonce = (0).to_bytes(4, "little") + width.to_bytes(4, "little") + bytes(8)
    data = Cipher(algorithms.ChaCha20(key, nonce), None).encryptor().update(bytes(size * count))
    return np.frombuffer(data, f"<u{size}").astype(np.uint32)


# Shamir's shares over GF(256).


def product(a: int, b: int) -> int:
    found = 0
    while b:
        found ^= a * (b & 1)
        a, b = (a << 1) ^ (0x11B * (a >> 7)), b >> 1
    return found


TIMES = np.array([[product(a, b) for b in range(256)] for a in range(256)], np.uint8)
INVERSE = [0, *(next(b for b in range(1, 256) if TIMES[a, b] == 1) for a in range(1, 256))]


def shares_of(secret: bytes, threshold: int, count: int, random: bytes) -> list[bytes]:
    """Share x = 1, 2, ... of a secret; random: threshold - 1 times as many bytes as the secret has."""
    coefficients = np.frombuffer(secret + random, np.uint8).reshape(threshold, len(secret))
    shares = []
    for x in range(1, count + 1):
        value = np.zeros(len(secret), np.uint8)
        for coefficient in coefficients[::-1]:
            value = TIMES[x][value] ^ coefficient
        shares.append(value.tobytes())
    return shares


def value_at(at: int, shares: Mapping[int, bytes]) -> bytes:
    """The polynomial through these shares, at x = `at`; 0: the secret."""
    total = np.zeros(len(next(iter(shares.values()))), np.uint8)
    for x, share in shares.items():
        factor = 1
        for other in shares:
            if other != x:
                factor = TIMES[factor, TIMES[at ^ other, INVERSE[x ^ other]]]
        total ^= TIMES[factor][np.frombuffer(share, np.uint8)]
    return total.tobytes()


# Neighbours.


def binomial(count: int, a: int, least: int, most: int) -> int:
    """256^count times the chance that `least` to `most` of `count` come, each with chance a / 256."""
    hits = range(max(least, 0), min(most, count) + 1)
    return sum(math.comb(count, k) * a**k * (256 - a) ** (count - k) for k in hits)


def share_of(phones: int, share: float) -> int:
    return math.floor(share * phones + 1e-9)


def log_many(count: int, p: float, least: int) -> float:
    """A bound of the log of the chance that `least` or more of `count` come, each with chance p."""
    share = least / count
    if share <= p:
        return 0.0
    return -count * (share * math.log(share / p) + (1 - share) * math.log((1 - share) / (1 - p) if share < 1 else 1))


def part_chance(honest: int, c: int, a: int, t: int, agree: int) -> float:
    """A bound of the chance that a list can be named whose honest phones fall into two parts."""
    chance = 0.0
    for k in range(1, honest // 2 + 1):
        needed, others = max(t - k + 1, 0), max(k, agree - c - k)
        if needed <= c and k + others <= honest:
            enough = binomial(c, a, needed, c) / 256**c
            found = math.log(math.comb(honest, k)) + k * math.log(enough)
            chance += math.exp(min(found + log_many(honest - k, (1 - a / 256) ** k, others), 0.0))
    return chance


@functools.cache
def rule(phones: int, curious: float, dropouts: float) -> tuple[int, int, int]:
    """a, t and T."""
    c, d = share_of(phones, curious), share_of(phones, dropouts)
    agree = (phones + c) // 2 + 1
    if agree > phones - d:
        raise UsageError(f"cohort of {phones}: {agree} must agree, {phones - d} may be left")
    left = phones - 1 - d
    if phones <= ALL:
        t = max(1, left)
        if t <= c:
            raise UsageError(f"cohort of {phones}: a secret takes {t} shares, and {c} may be curious")
        return 256, t, agree
    for a in range(1, 257):
        t = 0
        while t < left and binomial(left, a, 0, t) * 10**6 * phones <= 256**left:
            t += 1
        if t and binomial(c, a, t, c) * 2**40 * phones <= 256**c:
            mean = (phones - 1) * a / 256
            if mean + 6 * math.sqrt(mean * (1 - a / 256)) > 255:
                break
            if part_chance(phones - c, c, a, t, agree) <= 2**-40:
                return a, t, agree
    raise UsageError(f"cohort of {phones}: no number of neighbours will do")


# The grid.


def flips(base_sha256: str, settings: str, columns: int) -> Array:
    """Signs [columns, 4096]: block by block."""
    digest = hash_of("phonograd-grid-1", base_sha256, sha256(settings.encode()).hexdigest())
    seed = int.from_bytes(bytes.fromhex(digest)[:8], "big")
    bits = np.unpackbits(words(seed, "grid", columns * ROWS // 64).view("u1"), bitorder="little")
    return np.where(bits, np.float32(-1), np.float32(1)).reshape(columns, ROWS)


class Grid:
    """The codec of a round's settings, for a model of `parameters` weights that are not frozen."""

    def __init__(self, text: str, base_sha256: str, parameters: int):
        settings = json.loads(text)
        self.settings, self.columns = settings, -(-parameters // ROWS)
        self.sent = ROWS // settings["support"]
        self.level = 2 ** (settings["bits"] - 1) - 1
        self.step = 6 * settings["clip"] / (math.sqrt(ROWS * self.columns) * self.level)
        self.values = self.columns * self.sent + 1
        self.width = (2 * self.largest_sum(settings["cohort"]) + 1).bit_length()
        self.signs = flips(base_sha256, text, self.columns)

    @property
    def noise(self) -> float:
        """Noise in steps."""
        return float(self.settings["noise"] * self.settings["clip"] / self.step)

    def about(self) -> About:
        """The most that a phone moves the sum: its delta, and one step of each value, decoded."""
        fewest, support = self.settings["min_cohort"], self.settings["support"]
        moved = support * (self.settings["clip"] + self.step * math.sqrt(self.values - 1))
        honest = rule(fewest, self.settings["curious"], self.settings["dropouts"])[2]
        honest -= share_of(fewest, self.settings["curious"])
        return About(self.width, self.values, self.columns * ROWS, self.step, self.noise, moved, honest)

    def largest_sum(self, phones: int) -> int:
        """Largest sum of phones of full weight."""
        return int(phones * self.settings["weight_cap"] * self.level) + math.ceil(10 * self.noise * math.sqrt(phones))

    def encode(self, deltas: Array, tokens: int, random: np.random.Generator) -> Array:
        """A phone's values, int64, the weight last."""
        norm = float(np.linalg.norm(deltas.astype(np.float64)))
        padded = np.zeros(ROWS * self.columns, np.float32)
        padded[: len(deltas)] = deltas * min(1.0, self.settings["clip"] / norm if norm else 1.0)
        blocks = padded.reshape(ROWS, self.columns).T
        y = hadamard(blocks * self.signs)[:, : self.sent].astype(np.float64) / 64
        codes = np.clip(np.floor(y / self.step + random.random(y.shape)), -self.level, self.level).astype(np.int64)
        weight = min(tokens, self.settings["weight_cap"])
        return np.append(codes.reshape(-1) * weight, weight)

    def decode(self, values: Array, divisor: float) -> Array:
        """The deltas of a sum of values without the weight, float32 and padded."""
        y = np.zeros((self.columns, ROWS), np.float32)
        y[:, : self.sent] = values.reshape(self.columns, self.sent) * (self.step / divisor)
        return (hadamard(y) * self.signs * np.float32(self.settings["support"] / 64)).T.reshape(-1)


# The file.


def pack(values: Array, width: int) -> Array:
    bits = (values.astype(np.uint32)[:, None] >> np.arange(width, dtype=np.uint32)) & 1
    return np.packbits(bits.astype(np.uint8).reshape(-1), bitorder="little")


def unpack(data: Array, width: int, count: int) -> Array:
    bits = np.unpackbits(data, bitorder="little")[: count * width].reshape(count, width)
    return (bits.astype(np.uint32) << np.arange(width, dtype=np.uint32)).sum(1, dtype=np.uint32)


def write_masked(path: Path, values: Array, width: int, base_sha256: str, number: int, cohort: str) -> None:
    about = {"format": "phonograd-masked", "version": "1", "base_sha256": base_sha256, "round": str(number)}
    about |= {"cohort": cohort, "bits": str(width)}
    save_tensors(path, {"values": pack(values & ((1 << width) - 1), width)}, about, checksum=True)


class Cohort:
    """pg_cohort; see phonograd.device_runtime.masked.cohort.MaskedCohort."""

    def __init__(self, number: int, base_sha256: str, settings: str, vendor: str | None = None):
        self.number, self.base_sha256, self.vendor = number, base_sha256, vendor
        self.text, self.settings = settings, json.loads(settings)
        digest = sha256(settings.encode()).hexdigest()
        self.context = hash_of("phonograd-masked-1", str(number), base_sha256, digest)
        self.grid: Grid | None = None
        for phones in {self.settings["min_cohort"], self.settings["cohort"]}:
            rule(phones, self.settings["curious"], self.settings["dropouts"])

    def close(self) -> None:
        pass

    def about(self, parameters: int) -> About:
        self.grid = Grid(self.text, self.base_sha256, parameters)
        return self.grid.about()

    def commitment(self, kind: str, phone: str, identity: str, value: str) -> str:
        """The hash by which a phone announces its self mask or its draw."""
        return hash_of(f"phonograd-{kind}-1", self.context, phone, identity, value)

    def keys_text(self, message: Message) -> bytes:
        names = (message["phone"], message["sealing"], message["masking"], message["self"], message["draw"])
        return lines("phonograd-keys-1", self.context, *names)

    def check_keys(self, message: Message) -> None:
        name, identity = message["phone"], message["identity"]
        certified = lines("phonograd-phone-1", name, identity)
        require(
            self.vendor is None or signed_by(self.vendor, message["certificate"], certified),
            f"phone {name}: the vendor's certificate expected",
        )
        require(signed_by(identity, message["signature"], self.keys_text(message)), f"phone {name}: wrong signature")

    def fix(self, keys: Iterable[Message]) -> Fixed:
        self.keys = {message["phone"]: message for message in sorted(keys, key=lambda one: one["phone"].encode())}
        for message in self.keys.values():
            self.check_keys(message)
        every = [message[name] for message in self.keys.values() for name in (*KEY_FIELDS, "self", "draw")]
        require(len(set(every)) == len(every), "a key comes twice")
        last_bits = [int(message[name][62:], 16) >> 7 for message in self.keys.values() for name in KEY_FIELDS[1:]]
        require(not any(last_bits), "a key in another form")
        of_phones = (
            f"{name} {' '.join(one[field] for field in (*KEY_FIELDS, 'self', 'draw'))}"
            for name, one in self.keys.items()
        )
        self.hash = hash_of("phonograd-cohort-1", self.context, *of_phones)
        self.a, self.t, self.agree = rule(len(self.keys), self.settings["curious"], self.settings["dropouts"])
        self.id = self.hash
        self.numbers: dict[str, int] = {}
        self.coins: dict[tuple[str, str], bool] = {}
        return Fixed(self.hash, self.a, self.t, self.agree)

    def _is_announced(self, kind: str, phone: str, value: str) -> bool:
        keys = self.keys[phone]
        return bool(self.commitment(kind, phone, keys["identity"], value) == keys[kind])

    def check_draw(self, phone: str, message: Message) -> None:
        require(self._is_announced("draw", phone, message["draw"]), f"phone {phone}: another draw than it announced")

    def draws(self, draws: Mapping[str, str]) -> None:
        for phone, draw in draws.items():
            self.check_draw(phone, {"draw": draw})
        self.coins = {}
        seeds = {phone: hash_of("phonograd-number-1", self.hash, phone, draw) for phone, draw in draws.items()}
        self.numbers = {phone: int.from_bytes(bytes.fromhex(seed)[:8], "big") for phone, seed in seeds.items()}
        ordered = sorted(draws, key=str.encode)
        self.id = hash_of("phonograd-draws-1", self.hash, *(f"{phone} {draws[phone]}" for phone in ordered))
        self.sorted = ordered

    def neighbours(self, phone: str) -> list[str]:
        return [other for other in self.sorted if self.are_neighbours(phone, other)]

    def are_neighbours(self, one: str, other: str) -> bool:
        if (one, other) not in self.coins:
            number = SplitMix64(self.numbers[one] + self.numbers[other] - 0x9E3779B97F4A7C15).next()
            self.coins[one, other] = self.coins[other, one] = one != other and number >> 56 < self.a
        return self.coins[one, other]

    def holders(self, phone: str) -> list[str]:
        """Phones that hold shares of a phone's secrets, in order."""
        return self.neighbours(phone)[:255]

    def check_shares(self, phone: str, message: Message) -> None:
        require(phone in self.numbers, f"phone {phone}: told no draw")
        require(
            set(message["shares"]) == set(self.holders(phone)), f"phone {phone}: shares for its neighbours expected"
        )

    def members(self, names: Collection[str]) -> None:
        require(set(names) <= set(self.numbers) and len(set(names)) == len(names), "members that told no draw")
        self._require_neighbours(names)
        self.of_cohort = sorted(names, key=str.encode)
        self.held = {phone: self.holders(phone) for phone in self.of_cohort}

    def members_text(self) -> bytes:
        listed = hash_of("phonograd-member-list-1", self.id, *self.of_cohort)
        return lines("phonograd-members-1", self.id, listed)

    def check_members(self, phone: str, signature: str) -> None:
        signed = phone in self.held and signed_by(self.keys[phone]["identity"], signature, self.members_text())
        require(signed, f"phone {phone}: wrong signature of the members")

    def _require_neighbours(self, phones: Collection[str]) -> None:
        for phone in phones:
            left = sum(self.are_neighbours(phone, other) for other in phones)
            require(left >= self.t, f"phone {phone}: too few of its neighbours are left")

    def list(self, alive: Collection[str], signatures: Mapping[str, str]) -> None:
        require(set(alive) <= set(self.of_cohort) and len(set(alive)) == len(alive), "the list has others than members")
        for phone, signature in signatures.items():
            self.check_members(phone, signature)
        require(set(alive) <= set(signatures), "one that is alive signed no members")
        self._require_neighbours(alive)
        self.alive = set(alive)
        names = self.of_cohort
        said = (f"{name} {'alive' if name in self.alive else 'dead'}" for name in names)
        self.listed = hash_of("phonograd-list-1", self.id, *said)

    def agree_text(self) -> bytes:
        return lines("phonograd-agree-1", self.id, self.listed)

    def agrees(self, phone: str, signature: str) -> bool:
        return phone in self.held and signed_by(self.keys[phone]["identity"], signature, self.agree_text())

    def check_agreement(self, phone: str, signature: str) -> None:
        require(self.agrees(phone, signature), f"phone {phone}: wrong signature of the list")

    def is_secret(self, phone: str, secret: bytes, alive: bool) -> bool:
        """Whether this is its self mask (alive), or its masking key."""
        if alive:
            return self._is_announced("self", phone, secret.hex())
        return bool(public_of(secret) == self.keys[phone]["masking"])

    def check_answer(self, phone: str, message: Message) -> None:
        require(
            self._is_announced("self", phone, message["self"]), f"phone {phone}: another self mask than it announced"
        )
        held = {name for name in self.held if name != phone and phone in self.held[name]}
        require(set(message["shares"]) <= held, f"phone {phone}: shares of phones that it holds none of")

    def mask(self, one: str, other: str, secret: bytes, values: int, width: int) -> Array:
        """What `one`, whose masking key is `secret`, adds of its mask with `other`."""
        first, second = sorted((one, other), key=str.encode)
        key = derive(agree(secret, self.keys[other]["masking"]), self.id, "phonograd-mask-1", first, second)
        mask = stream(key, width, values)
        return mask if one == first else (0 - mask).astype(np.uint32)


class Sum:
    """pg_sum; see phonograd.device_runtime.masked.cohort.MaskedSum."""

    def __init__(self, values: int, width: int):
        self.width, self.sum = width, np.zeros(values, np.uint32)

    def _read(self, cohort: Cohort, path: Path) -> Array:
        with TensorFile(path) as file:
            file.take_checksum()
            about = dict(file.metadata)
            expected = {"format": "phonograd-masked", "version": "1", "base_sha256": cohort.base_sha256}
            expected |= {"round": str(cohort.number), "cohort": cohort.id, "bits": str(self.width)}
            require(about == expected, f"{path}: {expected} expected, found {about}")
            require(set(file.specs) == {"values"}, f"{path}: values expected")
            found = file.read("values")
        require(len(found) == -(-len(self.sum) * self.width // 8), f"{path}: {len(self.sum)} values expected")
        return unpack(found, self.width, len(self.sum))

    def add(self, cohort: Cohort, path: Path) -> None:
        self.sum += self._read(cohort, path)

    def unmask(self, cohort: Cohort, answers: Mapping[str, Message]) -> Unmasked:
        wrong: set[str] = set()
        for phone in cohort.of_cohort:
            alive = phone in cohort.alive
            secret = self._secret(cohort, phone, alive, answers, wrong)
            if alive:
                self.sum -= stream(derive(secret, cohort.id, "phonograd-self-1"), self.width, len(self.sum))
                continue
            for other in cohort.alive:
                if cohort.are_neighbours(phone, other):
                    self.sum += cohort.mask(phone, other, secret, len(self.sum), self.width)
        signed = self._signed_numbers()
        weight, cap = int(signed[-1]), cohort.settings["weight_cap"]
        assert cohort.grid is not None
        most = cohort.grid.largest_sum(len(cohort.alive))
        fits = len(cohort.alive) <= weight <= len(cohort.alive) * cap and np.abs(signed[:-1]).max(initial=0) <= most
        require(bool(fits), "the sum is one that no codes have")
        return Unmasked(tuple(sorted(wrong)), weight)

    def _secret(
        self, cohort: Cohort, phone: str, alive: bool, answers: Mapping[str, Message], wrong: set[str]
    ) -> bytes:
        """b of a phone that is alive, or the masking key of a dead one."""
        if alive and phone in answers:
            return bytes.fromhex(answers[phone]["self"])
        shares = {
            x: bytes.fromhex(answers[holder]["shares"][phone])
            for x, holder in enumerate(cohort.held[phone], 1)
            if holder in answers and phone in answers[holder]["shares"]
        }
        for chosen in itertools.islice(itertools.combinations(shares, cohort.t), 2000):
            some = {x: shares[x] for x in chosen}
            secret = value_at(0, some)
            if cohort.is_secret(phone, secret, alive):
                wrong |= {cohort.held[phone][x - 1] for x in shares if value_at(x, some) != shares[x]}
                return secret
        raise UpdateError(f"phone {phone}: its secret can't be put together of {len(shares)} shares")

    def _signed_numbers(self) -> Array:
        """Numbers modulo 2^w as signed ones."""
        top = 1 << self.width
        values = self.sum.astype(np.int64) & (top - 1)
        return np.where(values >= top // 2, values - top, values)

    def values(self) -> Array:
        return self._signed_numbers().astype(np.int32)

    def decode(self, cohort: Cohort, divisor: float, elements: int) -> Array:
        assert cohort.grid is not None
        decoded = cohort.grid.decode(self._signed_numbers()[:-1].astype(np.float64), divisor)
        assert len(decoded) == elements
        return decoded
