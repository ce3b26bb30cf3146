"""Questions for crypto_tool.cpp, and the answers of the RFCs and of `cryptography`."""

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from phonograd.device_runtime.native_build.targets import NATIVE
from tests.native.kernels import SOURCES as KERNELS

SOURCES = (
    Path(__file__).with_name("crypto_tool.cpp"),
    *(path for path in sorted((NATIVE / "src" / "crypto").iterdir()) if path.suffix != ".h"),
    *KERNELS[1:],
    NATIVE / "src" / "base" / "random_bytes.cpp",
)
# A line for the tool (functions, bytes, numbers), and its answer.
Case = tuple[Sequence[str | bytes | int], bytes | str]
L = 2**252 + 27742317777372353535851937790883648493  # the order of Ed25519's group
# Of the RFCs 7748 (5.2), 8032 (7.1) and 5869 (A.1, A.3); last a signature for which only the equation times the
# cofactor holds: a point of order 8 was added to R.
RFCS = """
shared a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4
  e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c
= c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552
shared 4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d
  e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493
= 95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957
ed25519 9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60
= d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a
sign 9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60 -
= e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b
sign c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7 af82
= 6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a
hkdf 0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b 000102030405060708090a0b0c f0f1f2f3f4f5f6f7f8f9
= 3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf
hkdf 0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b - -
= 8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d
verify 88aa55e6afeed8960a3191de78600347db8acd0a3795412f275f049b86260488 af82 5b61c2e3b93e6c06450f327ea72cdfeb8cde6aa020d2dd827ab3f86e708c83939701f3314025c6d500c98be9e8536f570a561b02924792dce5525268a7b9b604
= no
"""  # noqa: E501


def spell(part: str | bytes | int) -> str:
    return part.hex() or "-" if isinstance(part, bytes) else str(part)


def hold(tool: Sequence[str | Path], cases: Sequence[Case]) -> None:
    """Assert that the tool answers each case as expected."""
    lines = "".join(" ".join(map(spell, case)) + "\n" for case, _ in cases)
    found = subprocess.run(tool, input=lines, capture_output=True, text=True, check=True).stdout.splitlines()
    for (case, expected), answer in zip(cases, found, strict=True):
        assert answer == spell(expected), case


def examples() -> Iterator[Case]:
    for example in RFCS.replace("\n ", "").replace("\n=", " =").strip().splitlines():
        *case, _, expected = example.split()
        yield case, expected


def comparisons(random: np.random.Generator, size: int) -> Iterator[Case]:
    """What `cryptography` computes of random keys and a message of this size."""
    one, two, message = random.bytes(32), random.bytes(32), random.bytes(size)
    public = X25519PrivateKey.from_private_bytes(two).public_key().public_bytes_raw()
    yield ("x25519", two), public
    shared = X25519PrivateKey.from_private_bytes(one).exchange(X25519PublicKey.from_public_bytes(public))
    yield ("shared", one, public), shared
    signer = Ed25519PrivateKey.from_private_bytes(one)
    key, signature = signer.public_key().public_bytes_raw(), signer.sign(message)
    yield ("ed25519", one), key
    yield ("sign", one, message), signature
    yield ("verify", key, message, signature), "yes"
    yield ("verify", key, message + b"x", signature), "no"
    yield ("verify", flip_bit(key, 5), message, signature), "no"
    for at in (0, 40, 63):
        yield ("verify", key, message, flip_bit(signature, at)), "no"
    above = int.from_bytes(signature[32:], "little") + L  # the same number modulo L
    yield ("verify", key, message, signature[:32] + above.to_bytes(32, "little")), "no"
    yield ("hkdf", one, message, two), HKDF(SHA256(), 32, message, two).derive(one)
    sealed = ChaCha20Poly1305(one).encrypt(bytes(12), message, None)
    yield ("seal", one, message), sealed
    yield ("open", one, sealed), message
    for at in range(0, len(sealed), 7):
        yield ("open", one, flip_bit(sealed, at)), "refused"
    yield ("open", one, flip_bit(sealed, len(sealed) - 1)), "refused"
    yield ("open", two, sealed), "refused"
    yield ("open", one, sealed[: size % 16]), "refused"


def flip_bit(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :]


def keystreams(kernels: str, random: np.random.Generator, blocks: int) -> Iterator[Case]:
    """Streams of `blocks` blocks: from the first, from an odd one, and to the last."""
    key, nonce = random.bytes(32), random.bytes(4)
    for counter in (0, 77, 2**32 - blocks):
        begin = algorithms.ChaCha20(key, counter.to_bytes(4, "little") + nonce + bytes(8))
        stream = Cipher(begin, None).encryptor().update(bytes(64 * blocks))
        line = ("keystream", kernels, key, int.from_bytes(nonce, "little"), counter)
        for bits, sign in ((16, "+"), (16, "-"), (32, "+"), (32, "-")):
            words = np.frombuffer(stream, f"<u{bits // 8}").astype(np.uint32)
            for n in {len(words), len(words) - 1, len(words) * 2 // 3}:
                sums = np.arange(n + 1, dtype=np.uint32) * np.uint32(0x9E3779B9)
                sums[:n] = sums[:n] + words[:n] if sign == "+" else sums[:n] - words[:n]
                yield (*line, f"{bits}{sign}", n), sums.tobytes()


def cases(kernels: Sequence[str]) -> list[Case]:
    random = np.random.default_rng(5)
    found = list(examples())
    for size in (0, 1, 15, 16, 17, 63, 64, 65, 1000):
        found += comparisons(random, size)
    for name in kernels:
        for blocks in (1, 3, 4, 5, 8, 15, 16, 17, 33, 64, 65, 130):
            found += keystreams(name, random, blocks)
    return found
