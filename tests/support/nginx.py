"""nginx before a server, with its defaults but for what a test says."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from examples.cluster.services import held_port, running

SETTINGS = """
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log stderr warn; {user}
events {{ }}
http {{
    log_format seen '$request_method $uri $status $http_x_http_method_override'; access_log {folder}/seen seen;
    default_type text/plain;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    server {{ listen 127.0.0.1:{port}; {locations} }}
}}
"""


@contextlib.contextmanager
def nginx(folder: Path, locations: str) -> Iterator[str]:
    """nginx with these locations; its URL. `seen` in `folder` has a line for each request."""
    folder.mkdir(exist_ok=True)
    settings, program = folder / "nginx.conf", shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")
    assert program is not None
    with held_port() as port:
        user = "user root;" if os.getuid() == 0 else ""
        settings.write_text(SETTINGS.format(folder=folder, port=port, user=user, locations=locations), "utf-8")
        with running([program, "-p", str(folder), "-e", "stderr", "-c", str(settings)], folder / "log", port):
            yield f"http://127.0.0.1:{port}"
