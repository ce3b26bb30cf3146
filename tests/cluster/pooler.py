"""PgBouncer before a database, in transaction mode: each transaction of a client may be another connection's."""

import contextlib
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import make_url

from examples.cluster.services import held_port, running

SETTINGS = """
[databases]
* = host={host} port={port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own}
unix_socket_dir =
auth_type = trust
auth_file = {users}
pool_mode = transaction
"""


@contextlib.contextmanager
def pooler_before(database: str, folder: Path) -> Iterator[str]:
    """The URL of a database, as a pooler serves it; `folder`: for its files."""
    program = shutil.which("pgbouncer", path=os.environ.get("PATH", "") + ":/usr/sbin")
    if program is None:
        raise FileNotFoundError("pgbouncer: expected on the path; install it: apt-get install pgbouncer")
    url = make_url(database)
    settings, users = folder / "pgbouncer.ini", folder / "users"
    users.write_text(f'"{url.username}" ""\n')
    user = "postgres" if os.getuid() == 0 else None  # it refuses to run as root
    with held_port() as port:
        settings.write_text(SETTINGS.format(host=url.host, port=url.port, own=port, users=users))
        for path in (folder, settings, users):
            if user is not None:
                shutil.chown(path, user)
        with running([program, str(settings)], folder / "log", port, user, signal.SIGINT):
            yield url.set(port=port).render_as_string()
