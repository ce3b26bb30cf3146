"""The cryptography of masked rounds (crypto/crypto.h, kernels' keystream): the RFCs' examples, and `cryptography`."""

import errno
import hashlib
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from phonograd.device_runtime.native_build import build_program
from phonograd.device_runtime.native_build.targets import NATIVE
from tests.native.crypto_cases import SOURCES, L, cases, hold
from tests.native.kernels import FUNCTIONS

P = 2**255 - 19
KEY = bytes(range(32))
# All points of low order on the curve and its twist, also in the forms that are not canonical.
LOW_ORDER = [0, 1, P - 1, P, P + 1] + [
    int.from_bytes(bytes.fromhex(point), "little")
    for point in (
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
        "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
    )
]
# Ed25519's of order 1, 2, 4 and 8.
SMALL_KEYS = [(y).to_bytes(32, "little") for y in (1, P - 1, 0)] + [
    bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a")
]


@pytest.fixture(scope="module")
def tool() -> Path:
    return build_program("crypto_tool", SOURCES)


def test_all_of_it_is_what_the_rfcs_and_cryptography_have(tool: Path) -> None:
    hold([tool], cases(FUNCTIONS))


def test_public_keys_of_low_order_are_refused(tool: Path) -> None:
    points = [point + high for point in LOW_ORDER for high in (0, 2**255)]  # the last bit means nothing
    hold([tool], [(("shared", KEY, point.to_bytes(32, "little")), "refused") for point in points])
    # s B = R + h A holds for every message whose h is a multiple of A's order.
    r = Ed25519PrivateKey.from_private_bytes(KEY).public_key().public_bytes_raw()
    clamped = int.from_bytes(hashlib.sha512(KEY).digest()[:32], "little") & (2**254 - 8) | 2**254
    signature = r + (clamped % L).to_bytes(32, "little")
    messages = [bytes([number]) for number in range(64)]
    for key in SMALL_KEYS:
        h = [int.from_bytes(hashlib.sha512(r + key + message).digest(), "little") % L for message in messages]
        assert any(number % 8 == 0 for number in h)
        hold([tool], [(("verify", key, message, signature), "no") for message in messages])


def test_secrets_are_random_and_wiped(tool: Path) -> None:
    drawn = subprocess.run([tool], input="random\n" * 20, capture_output=True, text=True, check=True).stdout.split()
    assert len(set(drawn)) == 20
    assert {len(bytes.fromhex(one)) for one in drawn} == {32}
    hold([tool], [(("wiped",), "yes")])


def test_random_bytes_where_getrandom_fails() -> None:
    sources = [NATIVE / "src" / "base" / f"{name}.cpp" for name in ("files", "random_bytes")]
    tool = build_program("random_tool", [Path(__file__).with_name("random_tool.cpp"), *sources])

    def of(reason: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run([tool, str(reason)], capture_output=True, text=True, check=False)

    drawn = [of(errno.ENOSYS).stdout for _ in range(2)]  # an old kernel: from /dev/urandom
    assert drawn[0] != drawn[1]
    assert all(len(bytes.fromhex(one)) == 32 for one in drawn)
    refused = of(errno.EPERM)
    assert refused.returncode == 10
    assert refused.stdout.startswith(
        "random numbers: the system gave none (Operation not permitted); let the process use"
    )
