from collections.abc import Iterator

import pytest
import torch

from tests.support.command_line import phono

__all__ = ["phono"]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Use one thread: on such small models two only wait for each other, on a busy machine for seconds a test."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
