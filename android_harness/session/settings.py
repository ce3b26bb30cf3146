"""Settings of a session on a phone, and their defaults."""

from dataclasses import dataclass

# The shell user's folder on every Android; files there may be executed.
WORK_FOLDER = "/data/local/tmp/phonograd"
# Names under the work folder: the program, and the folder of files that are removed when a session ends.
PROGRAM = "phonograd-phone"
TRANSIENT_FOLDER = "run"


@dataclass(frozen=True)
class SessionSettings:
    """Settings of a session.

    timeout_seconds: a phone whose program prints nothing for this long counts as lost, and a phone that receives no
    heartbeat for this long ends its work and cleans up. heartbeat_seconds: time between heartbeats; a quarter of
    `timeout_seconds` if that is less. reconnect_seconds: how long to wait for a lost phone to come back, only to report
    what happened to it. exit_seconds: how long a phone may take to end a session. keep_files: leave the pushed files on
    the phone for the next session.
    """

    folder: str = WORK_FOLDER
    keep_files: bool = False
    heartbeat_seconds: float = 2.0
    timeout_seconds: float = 300.0
    reconnect_seconds: float = 10.0
    exit_seconds: float = 30.0
