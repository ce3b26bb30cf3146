import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from phonograd.device_runtime.engine.backend import IGNORED
from phonograd.device_runtime.text.vocabulary import EOS
from phonograd.device_runtime.text.windows import windows


def test_a_hand_made_layout() -> None:
    layout = list(windows(np.array([5, 6, 7, 8, 9]), minibatch=2, bptt=2))
    # columns: <eos>5 67 | 789.. ; three rows, the second window has one real row
    assert [w.tokens.tolist() for w in layout] == [[[EOS, 7], [5, 8]], [[6, EOS], [EOS, EOS]]]
    assert [w.targets.tolist() for w in layout] == [[[5, 8], [6, 9]], [[7, IGNORED], [IGNORED, IGNORED]]]
    assert [w.predictions for w in layout] == [4, 1]


@given(
    stream=st.lists(st.integers(0, 99), min_size=1, max_size=200),
    minibatch=st.integers(1, 12),
    bptt=st.integers(1, 12),
)
def test_every_token_is_predicted_once_from_its_predecessor(stream: list[int], minibatch: int, bptt: int) -> None:
    layout = list(windows(np.array(stream), minibatch, bptt))
    assert all(w.tokens.shape == w.targets.shape == (bptt, minibatch) for w in layout)
    tokens = np.concatenate([w.tokens for w in layout]).T.reshape(-1)
    targets = np.concatenate([w.targets for w in layout]).T.reshape(-1)
    real = targets != IGNORED
    assert targets[real].tolist() == stream
    assert tokens[real].tolist() == [EOS, *stream[:-1]]
    assert sum(w.predictions for w in layout) == len(stream)
    assert layout[-1].predictions > 0
