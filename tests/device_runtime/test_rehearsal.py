import pytest

from phonograd.device_runtime.base.errors import TextError
from phonograd.device_runtime.base.random_words import SplitMix64
from phonograd.device_runtime.text.rehearsal import mix
from phonograd.device_runtime.text.vocabulary import Vocabulary

VOCABULARY = Vocabulary((b"<unk>", b"<eos>", b"mine", *(b"g%d" % n for n in range(40))))
GENERAL = [b" ".join(b"g%d" % (n + k) for k in range(1 + n % 4)) for n in range(30)]


def test_splitmix64_gives_its_published_numbers() -> None:
    random = SplitMix64(1234567)
    # from the reference implementation in C
    assert [random.next() for _ in range(3)] == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@pytest.mark.parametrize(("share", "needed"), [(0.5, 60), (1e-300, 2**62), (5e-324, 2**62)])
def test_too_little_general_text_is_refused_not_stretched(share: float, needed: int) -> None:
    with pytest.raises(TextError, match=f"{needed} tokens needed, found 4"):
        mix([b"mine"] * 30, [b"g1", b"g2"], share, VOCABULARY, 0)


@pytest.mark.parametrize("share", [0.0, -1.0, 1.5, float("nan")])
def test_an_impossible_share_is_refused(share: float) -> None:
    with pytest.raises(TextError, match="expected a number in"):
        mix([b"mine"], GENERAL, share, VOCABULARY, 0)
