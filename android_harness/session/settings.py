"""How a session on a phone behaves: the one place of its defaults."""

from dataclasses import dataclass

# The shell user's own place on every Android; files there may be executed.
WORK_FOLDER = "/data/local/tmp/phonograd"
# The program, and transient files, under the work folder.
PROGRAM = "phonograd-phone"
TRANSIENT = "run"


@dataclass(frozen=True)
class SessionSettings:
    """Seconds, but for the names.

    `heartbeat` is how often the phone hears from us and `patience` how long it waits before it cleans up by itself;
    `reappear` is how long a lost phone is waited for, only to say what happened to it; `ending` is how long it may take
    to end a session. `keep` leaves what was pushed on the phone, for the next session.
    """

    folder: str = WORK_FOLDER
    keep: bool = False
    heartbeat: float = 2.0
    patience: int = 20
    reappear: float = 10.0
    ending: float = 20.0
