"""What a cluster runs besides phonograd: PostgreSQL, an S3 of moto's, and nginx; each until its block ends.

All listen on this machine alone and keep nothing. PostgreSQL refuses to run as root: for root it runs as the user
`postgres`, whom Debian's package makes.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import fsspec

BUCKET = "phonograd"
# For s3fs; moto takes any.
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any", "AWS_DEFAULT_REGION": "us-east-1"}
PATIENCE_SECONDS = 60.0

NGINX = """
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    upstream replicas {{
        {servers}
    }}
    server {{
        listen 127.0.0.1:{port};
        client_max_body_size 0;
        location / {{
            proxy_pass http://replicas;
            proxy_http_version 1.1;
            proxy_request_buffering off;
            proxy_buffering off;
            proxy_set_header Host $host;
            proxy_set_header X-Forwarded-For $remote_addr;
        }}
    }}
}}
"""


@contextlib.contextmanager
def held_port() -> Iterator[int]:
    """A port of this machine that no other program is given, for one to listen on, any number of times."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])


@contextlib.contextmanager
def postgresql() -> Iterator[str]:
    """A new database in a folder of its own; yields its URL."""
    binaries = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not binaries:
        raise FileNotFoundError("/usr/lib/postgresql: PostgreSQL expected; install it: apt-get install postgresql")
    user = "postgres" if os.getuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="phonograd-postgres-"))
    try:
        if user is not None:
            shutil.chown(folder, user, user)
        data, log = folder / "data", folder / "log"
        initdb = [str(binaries[-1] / "initdb"), "--pgdata", str(data), "--username", "phonograd", "--auth", "trust"]
        locale = ["--no-locale", "--encoding", "UTF8"]
        subprocess.run([*initdb, *locale], user=user, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        with held_port() as port:
            where = ["-D", str(data), "-p", str(port), "-c", "listen_addresses=127.0.0.1"]
            command = [str(binaries[-1] / "postgres"), *where, "-c", "unix_socket_directories="]
            with running(command, log, port, user, signal.SIGINT):
                yield f"postgresql://phonograd@127.0.0.1:{port}/postgres"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def s3(folder: Path) -> Iterator[dict[str, str]]:
    """An S3 with one bucket, BUCKET; yields the environment variables that lead s3fs to it. folder: for its log."""
    with held_port() as port:
        url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with running(command, folder / "s3.log", port):
        key, secret = CREDENTIALS["AWS_ACCESS_KEY_ID"], CREDENTIALS["AWS_SECRET_ACCESS_KEY"]
        fsspec.filesystem("s3", endpoint_url=url, key=key, secret=secret).mkdir(BUCKET)
        yield {**CREDENTIALS, "AWS_ENDPOINT_URL": url}


@contextlib.contextmanager
def nginx(folder: Path, replicas: Sequence[int]) -> Iterator[str]:
    """nginx before servers on these ports; yields its URL. folder: for its files.

    It asks the servers in turn, and leaves out one that refuses connections for a second.
    """
    servers = "\n        ".join(f"server 127.0.0.1:{replica} max_fails=1 fail_timeout=1s;" for replica in replicas)
    settings = folder / "nginx.conf"
    program = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")
    if program is None:
        raise FileNotFoundError("nginx: expected on the path; install it: apt-get install nginx-light")
    with held_port() as port:
        settings.write_text(NGINX.format(folder=folder, port=port, servers=servers), "utf-8")
        command = [program, "-p", str(folder), "-e", "stderr", "-c", str(settings)]
        with running(command, folder / "nginx.log", port):
            yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def running(
    command: Sequence[str], log: Path, port: int, user: str | None = None, stop: signal.Signals = signal.SIGTERM
) -> Iterator[None]:
    """A program that listens on `port`, until the block ends; its output goes to `log`."""
    with log.open("wb") as output:
        groups: list[str] | None = None if user is None else []
        process = subprocess.Popen(
            command, stdout=output, stderr=output, user=user, group=user, extra_groups=groups, cwd=log.parent
        )
    try:
        _until(lambda: process.poll() is not None or _answers(port), f"{command[0]} on port {port}; see {log}")
        if process.poll() is not None:
            raise RuntimeError(f"{command[0]} ended at once: {log.read_text('utf-8', 'replace')[-2000:]}")
        yield
    finally:
        process.send_signal(stop)
        process.wait()


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def _until(happens: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not happens():
        if time.monotonic() > end:
            raise TimeoutError(f"nothing came of {what}")
        time.sleep(0.02)
