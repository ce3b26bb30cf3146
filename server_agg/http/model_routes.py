"""Downloads of models, and the quality that evaluators report."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from phonograd.device_runtime.base.documents import Record, Sha256, about
from phonograd.device_runtime.base.errors import StorageError, UpdateError, WeightsError
from phonograd.device_runtime.client.protocol import ELSEWHERE_HEADER, LINKS_TYPE, METRIC
from phonograd.device_runtime.update.update_file import UpdateFile
from phonograd.server_agg.http.downloads import FilesResponse, matches, sha256_of_links
from phonograd.server_agg.http.operations import OCTETS, Answer, Body, Header, Octets, Parameter, operation, pattern_of
from phonograd.server_agg.http.requests import RecordResponse, note_phone, record_in
from phonograd.server_agg.http.round_routes import WHO
from phonograd.server_agg.http.thread_pools import ThreadPools
from phonograd.server_agg.http.tus import SHA256
from phonograd.server_agg.http.wire import wire_of
from phonograd.server_agg.refusals import RequestError
from phonograd.server_agg.report.document import lineage_of
from phonograd.server_agg.report.records import ModelEntry
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.rounds.publication import links_between
from phonograd.server_agg.settings.server import Downloads
from phonograd.server_agg.storage.quality import report_quality
from phonograd.server_agg.storage.tables import ASKED_KINDS, LINK_KINDS, TrafficKind

HASH = Parameter("path", "sha256", str, "A model's SHA-256, 64 hex digits.")
BASE = Parameter(
    "query", "base", str, "SHA-256 of a model that the client has: the answer may be links from it (FORMAT.md)."
)
ETAG = Header("ETag", str, "The body's SHA-256, quoted: of a whole model its own.")
ELSEWHERE = Header(ELSEWHERE_HEADER, str, "Without a body: the URL of the body, to be asked without a token.", False)
SENT = {
    200: Answer("The model: a tensor file.", Octets, (OCTETS,), (ETAG, ELSEWHERE)),
    206: Answer("A part of it.", Octets, (OCTETS,), (ETAG, Header("Content-Range"))),
    304: Answer("The client has this model.", headers=(ETAG,)),
}
SENT_AS_LINKS = {
    200: Answer("The model, or links to it.", Octets, (OCTETS, LINKS_TYPE), (ETAG, ELSEWHERE)),
    206: Answer("A part of that.", Octets, (OCTETS, LINKS_TYPE), (ETAG, Header("Content-Range"))),
    304: Answer("The client has this model, or these links.", headers=(ETAG,)),
}
ASKED = (
    WHO,
    Parameter("header", "If-None-Match", str, "ETag of a model that the client has."),
    Parameter("header", "Range", str, "One range of bytes; an invalid one is ignored."),
    Parameter("header", "If-Range", str, "ETag of the model that the client has a part of."),
)


class Models(Record, frozen=True):
    """All models, oldest first."""

    models: tuple[ModelEntry, ...]


class ModelQuality(Record, frozen=True):
    """A measured quality of a model."""

    metric: Annotated[str, Meta(extra_json_schema={"pattern": pattern_of(METRIC)}), about("Printable ASCII.")]
    value: Annotated[float, Meta(gt=-1e300, lt=1e300)]


class RecordedQuality(Record, frozen=True):
    """A recorded figure."""

    sha256: Sha256
    metric: str
    value: float
    reported_at: Annotated[float, about("Seconds since 1970, UTC.")]


class ModelRoutes:
    """The handlers over an open coordinator."""

    def __init__(self, coordinator: Coordinator, downloads: Downloads, pools: ThreadPools):
        self._coordinator = coordinator
        self._downloads = downloads
        self._pools = pools

    @operation("GET /v1/model", "phone", SENT, refuses=(416,), takes=ASKED)
    def current_model(self, request: Request) -> Response:
        """The open round's model."""
        self._coordinator.round.refresh()
        return self._send(request, self._coordinator.current.base_sha256)

    @operation("GET /v1/models", "admin", {200: Answer("Oldest first.", Models)})
    def models(self, _: Request) -> Response:
        """All models that the server keeps or has kept."""
        models = lineage_of(self._coordinator.ledger, self._coordinator.folder.kept_models)
        return RecordResponse(Models(tuple(models)))

    @operation("GET /v1/models/{sha256}", "phone", SENT_AS_LINKS, refuses=(404, 416), takes=(HASH, BASE, *ASKED))
    def model(self, request: Request) -> Response:
        """A model, or the links to it from another one, where these are smaller and kept; the type says which."""
        sha256, folder = request.path_params["sha256"], self._coordinator.folder
        if not SHA256.match(sha256) or not folder.has(folder.model(sha256)):
            raise RequestError(404, f"model {sha256[:80]} is not here, or no longer; the current one is at /v1/model")
        base = request.query_params.get("base")
        links = None if base is None else self._links(request, base, sha256)
        return self._send(request, sha256) if links is None else links

    def _links(self, request: Request, base: str, sha256: str) -> Response | None:
        folder = self._coordinator.folder
        try:
            links = links_between(self._coordinator.round.linked, base, sha256)
            paths = tuple(folder.fetch(folder.link(link)) for link in links)
            if not paths:
                return None
            etag = f'"{sha256_of_links(paths)}"'
            note_phone(request, _kind_of(paths[-1]))
            known = request.headers.get("If-None-Match")
            if matches(known, f'"{sha256}"') or matches(known, etag):
                return Response(status_code=304, headers={"ETag": etag})
            return self._body(request, paths, etag, LINKS_TYPE)
        except (FileNotFoundError, StorageError, UpdateError, WeightsError):  # deleted just now, or damaged
            return None

    @operation(
        "POST /v1/models/{sha256}/quality",
        "admin",
        {200: Answer("It is written down.", RecordedQuality)},
        refuses=(400, 404, 413),
        takes=(HASH,),
        body=Body(ModelQuality),
    )
    async def report_quality(self, request: Request) -> Response:
        """A measured quality of a model; replaces the same metric's earlier value."""
        figure = await record_in(request, ModelQuality)
        if not METRIC.match(figure.metric):
            raise RequestError(
                400, f"metric: 1 to 64 printable ASCII characters expected, found {figure.metric[:80]!r}"
            )
        sha256, (metric, value) = request.path_params["sha256"], (figure.metric, figure.value)
        ledger, actor = self._coordinator.ledger, request.state.actor
        reported_at = await self._pools.writing.run(report_quality, ledger, sha256, metric, value, actor)
        if reported_at is None:
            raise RequestError(404, f"model {sha256[:80]} is not one of this server's; see /v1/models")
        return RecordResponse(RecordedQuality(sha256, metric, value, reported_at))

    def _send(self, request: Request, sha256: str) -> Response:
        note_phone(request, "model")
        etag = f'"{sha256}"'
        if matches(request.headers.get("If-None-Match"), etag):
            return Response(status_code=304, headers={"ETag": etag})
        folder = self._coordinator.folder
        return self._body(request, [folder.fetch(folder.model(sha256))], etag, OCTETS)

    def _body(self, request: Request, paths: Sequence[Path], etag: str, media_type: str) -> Response:
        """Files that follow each other; of a single one perhaps where it is, for nginx or the phone to fetch."""
        whole, (first, *more) = FilesResponse(request, paths, etag, media_type), paths
        where = {} if more else self._elsewhere(request, f"{first.parent.name}/{first.name}")
        if not where:
            return whole
        wire = wire_of(request.scope)
        assert wire.kind is not None  # noted with the phone
        wire.kind, wire.asked = ASKED_KINDS[wire.kind], whole.asked
        return Response(headers={"ETag": etag, **where}, media_type=media_type)

    def _elsewhere(self, request: Request, name: str) -> Mapping[str, str]:
        if self._downloads == "redirect":
            return {ELSEWHERE_HEADER: self._coordinator.folder.store.presigned_url(name)}
        if self._downloads == "accel" and "X-Forwarded-For" in request.headers:  # else no proxy would fill it in
            return {"X-Accel-Redirect": f"/phonograd/{name}"}
        return {}


@lru_cache(maxsize=256)  # its name is its hash, which was checked
def _kind_of(link: Path) -> TrafficKind:
    with UpdateFile(link) as update:
        return LINK_KINDS[update.info.codec]  # type: ignore[index]  # a link has one of them
