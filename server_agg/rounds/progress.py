"""The progress of closing a round whose model takes minutes, and when phones should come again."""

from collections.abc import Callable

from phonograd.server_agg.rounds.responses import ClosingProgress

# An estimate may be wrong: no phone waits longer before it asks again.
LONGEST_RETRY_SECONDS = 600.0


class Progress:
    """Work done so far, reported by one thread and read by any. clock: seconds since 1970."""

    def __init__(self, clock: Callable[[], float]):
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """Begin again, at 0, for another round or after a restart."""
        self._began: tuple[float, float] | None = None  # time and share of the first report
        self._latest: tuple[float, float | None] = 0.0, None  # share, seconds left

    def report(self, done: int, total: int) -> None:
        """`done` of `total` parts are done; work that was resumed begins above 0."""
        now, share = self._clock(), min(1.0, done / total) if total > 0 else 0.0
        if self._began is None:
            self._began = now, share
        seconds, made = now - self._began[0], share - self._began[1]
        left = (1 - share) * seconds / made if made > 0 and seconds > 0 else self._latest[1]
        self._latest = share, left

    def since(self, at: float) -> ClosingProgress:
        """The progress of a round that is closing since `at`."""
        share, left = self._latest
        return ClosingProgress(since=at, share=share, seconds_left=left)

    def retry_seconds(self, usual: float) -> float:
        """Seconds after which a phone should come again; `usual` while there is no estimate."""
        left = self._latest[1]
        return min(max(1.0, usual if left is None else left), LONGEST_RETRY_SECONDS)
