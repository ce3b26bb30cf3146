"""The baseline of `bench ingest`: a starlette handler under uvicorn that only writes a body to a file.

uvicorn uses its default event loop and parser. With "sync" as second argument, the handler syncs the file before it
answers.
"""

import json
import os
import socket
import sys
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from phonograd.bench.uploads.sending import HOST


def bare_app(folder: Path, sync: bool) -> Starlette:
    """PUT /NAME writes the body to folder/NAME."""

    async def put_file(request: Request) -> Response:
        with (folder / request.path_params["name"]).open("wb") as file:
            async for chunk in request.stream():
                file.write(chunk)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        return Response(status_code=201)

    return Starlette(routes=[Route("/{name}", put_file, methods=["PUT"])])


def main() -> None:
    """Entry point; arguments: the folder, and optionally "sync". Prints {"port": ...} once it listens."""
    app = bare_app(Path(sys.argv[1]), "sync" in sys.argv[2:])
    listening = socket.create_server((HOST, 0))  # uvicorn would start listening only later
    sys.stdout.write(json.dumps({"port": listening.getsockname()[1]}) + "\n")
    sys.stdout.flush()
    uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False)).run([listening])
