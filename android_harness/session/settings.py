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

    `silence` is how long either side waits for the other: a phone whose program prints nothing for so long counts as
    lost, and a phone that hears nothing for so long cleans up by itself. `heartbeat` is how often it hears from us, or
    every quarter of `silence` if that is less. `reappear` is how long a lost phone is waited for, only to say what
    happened to it; `ending` is how long it may take to end a session. `keep` leaves what was pushed on the phone, for
    the next session.
    """

    folder: str = WORK_FOLDER
    keep: bool = False
    heartbeat: float = 2.0
    silence: float = 300.0
    reappear: float = 10.0
    ending: float = 30.0
