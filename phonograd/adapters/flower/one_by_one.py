"""A Flower grid whose replies are pulled one at a time, as they come."""

import time
from collections.abc import Iterable, Iterator
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid

POLL_SECONDS = 0.2  # between two looks at all phones that have not answered


class StreamingGrid:
    """A Grid, whose `send_and_receive` sends each message when it is made and yields each reply when it has come.

    Nothing here refers to a reply that was yielded: memory holds one, for any number of nodes.
    """

    def __init__(self, grid: Grid):
        self._grid = grid

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterator[Message]:
        """Replies to the messages, until all have come or `timeout` seconds are over."""
        sent = [identifier for message in messages for identifier in self._grid.push_messages([message])]
        waiting = [identifier for identifier in sent if identifier]  # the others could not be sent
        end = None if timeout is None else time.monotonic() + timeout
        while waiting:
            for identifier in list(waiting):
                replies = list(self._grid.pull_messages([identifier]))
                if replies:
                    waiting.remove(identifier)
                while replies:
                    yield replies.pop()
            if end is not None and time.monotonic() >= end:
                return
            if waiting:
                time.sleep(POLL_SECONDS)
