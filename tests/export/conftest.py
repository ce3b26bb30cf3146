from collections.abc import Iterator

import pytest
import torch

from tests.support.command_line import phono

__all__ = ["phono"]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """On models this small two OpenMP threads only wait for each other, and on a busy machine for seconds a test."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
