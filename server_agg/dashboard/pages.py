"""The dashboard's routes: pages, the open round as a fragment that browsers poll, static files."""

import hashlib
import mimetypes
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from phonograd.device_runtime.base.documents import document_of
from phonograd.server_agg.aggregation.privacy.accountant import NEIGHBOURS
from phonograd.server_agg.dashboard import formats, views
from phonograd.server_agg.dashboard.views import Page
from phonograd.server_agg.http.downloads import matches
from phonograd.server_agg.http.operations import HTML, Answer, Parameter, operation
from phonograd.server_agg.http.requests import in_query, whole_number
from phonograd.server_agg.refusals import RequestError
from phonograd.server_agg.report.document import GIB, PAPER_GIB_PER_ROUND, lineage_of, phones_of, projection, report_of
from phonograd.server_agg.report.text import NOTHING_SPENT, has_epsilon, next_model_text
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.storage import queries

HERE = Path(__file__).parent
NEWEST_ROUNDS = 10
ROUNDS_PER_PAGE = 25
MODELS_PER_PAGE = 25
PHONES_PER_PAGE = 100
# Paper P's federation: the projection's initial values.
PAPER_PHONES, PAPER_ROUNDS = 10, 300

PHONES = in_query("phones", "Phones per round, for the projection.", PAPER_PHONES)
ROUNDS = in_query("rounds", "Rounds, for the projection.", PAPER_ROUNDS)
PAGE = in_query("page", "Page of the table, from 1; beyond the last: the last.", 1)
NUMBER = Parameter("path", "number")
NAME = Parameter("path", "name")
IF_NONE_MATCH = Parameter("header", "If-None-Match")
SHOWN = Answer("An HTML page.", str, (HTML,))
STATIC = Answer("The file.", str, ("text/css; charset=utf-8", "text/javascript; charset=utf-8", "image/svg+xml"))
UNCHANGED = Answer("Not modified.")

# Only our own files are loaded, and no page may frame the dashboard.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


class Dashboard:
    """The pages over an open coordinator."""

    def __init__(self, coordinator: Coordinator):
        self._coordinator = coordinator
        self._templates = _environment()
        self._static = {path.name: path.read_bytes() for path in (HERE / "static").iterdir()}

    @operation("GET /", "admin", {200: SHOWN}, refuses=(400,), takes=(PHONES, ROUNDS))
    def overview(self, request: Request) -> Response:
        """The dashboard.

        The open round, totals, charts, the newest rounds, the projection.
        """
        phones, rounds = whole_number(request, PHONES), whole_number(request, ROUNDS)
        report = document_of(report_of(self._coordinator.ledger))
        return self._page(
            "overview.html",
            live=self._live(),
            next_model=next_model_text(report),
            tiles=views.tiles(report, self._coordinator.settings.strategy.epsilon_budget),
            charts=views.overview_charts(report),
            rounds_closed=report["totals"]["rounds_closed"],
            rounds_in_charts=views.MAX_CHART_ROUNDS,
            codecs=views.codec_rows(report),
            newest=report["rounds"][: -NEWEST_ROUNDS - 1 : -1],
            metrics=views.metrics_of(report),
            rounds_in_all=len(report["rounds"]),
            phones=phones,
            rounds=rounds,
            projected=projection(report, phones, rounds),
        )

    @operation("GET /dashboard/live", "admin", {200: SHOWN})
    def live(self, _: Request) -> Response:
        """The open round, as a fragment of HTML."""
        return self._page("live.html", live=self._live())

    @operation("GET /dashboard/rounds", "admin", {200: SHOWN}, refuses=(400,), takes=(PAGE,))
    def rounds_page(self, request: Request) -> Response:
        """All rounds, page by page."""
        report = document_of(report_of(self._coordinator.ledger))
        page = Page.of(report["rounds"][::-1], whole_number(request, PAGE), ROUNDS_PER_PAGE)
        return self._page("rounds.html", page=page, metrics=views.metrics_of(report))

    @operation("GET /dashboard/rounds/{number}", "admin", {200: SHOWN}, refuses=(400, 404), takes=(NUMBER, PAGE))
    def round_page(self, request: Request) -> Response:
        """A round and its phones."""
        number, page = request.path_params["number"], whole_number(request, PAGE)
        report = document_of(report_of(self._coordinator.ledger))
        entry = next((entry for entry in report["rounds"] if str(entry["round"]) == number.lstrip("0")), None)
        if entry is None:
            raise RequestError(404, f"round {number[:40]!r} is not here; see /dashboard/rounds")
        phones = [document_of(phone) for phone in phones_of(self._coordinator.ledger, entry["round"])]
        return self._page(
            "round.html",
            entry=entry,
            last=report["rounds"][-1]["round"],
            page=Page.of(phones, page, PHONES_PER_PAGE),
            totals=views.phone_totals(phones),
        )

    @operation("GET /dashboard/models", "admin", {200: SHOWN}, refuses=(400,), takes=(PAGE,))
    def models_page(self, request: Request) -> Response:
        """All models."""
        current = self._coordinator.current.base_sha256
        lineage = lineage_of(self._coordinator.ledger, self._coordinator.folder.kept_models)
        with self._coordinator.ledger.reading() as session:
            rolled_back, deployed = queries.rolled_back_rounds(session), queries.bases_after(session, 0)
        models = views.lineage_rows([document_of(model) for model in lineage], current, rolled_back, deployed)
        return self._page("models.html", page=Page.of(models, whole_number(request, PAGE), MODELS_PER_PAGE))

    @operation("GET /static/{name}", "open", {200: STATIC, 304: UNCHANGED}, refuses=(404,), takes=(NAME, IF_NONE_MATCH))
    async def static(self, request: Request) -> Response:
        """A static file.

        Browsers cache and revalidate it.
        """
        name = request.path_params["name"]
        content = self._static.get(name)
        if content is None:
            raise RequestError(404, f"no file {name[:80]!r}")
        etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        headers = {"ETag": etag, "Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}
        if matches(request.headers.get("If-None-Match"), etag):
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=mimetypes.guess_type(name)[0], headers=headers)

    def _live(self) -> dict[str, Any]:
        coordinator = self._coordinator
        return views.live(coordinator.current, coordinator.uploads.unfinished_uploads(), coordinator.ledger.clock())

    def _page(self, template: str, **values: Any) -> Response:
        now = self._coordinator.ledger.clock()
        html = self._templates.get_template(template).render(now=now, template=template, **values)
        return HTMLResponse(html, headers={**HEADERS, "Cache-Control": "no-store"})


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    names = ("size", "count", "number", "seconds", "date_time", "iso_time", "short", "ratio")
    filters: Mapping[str, Any] = {name: getattr(formats, name) for name in names}
    environment.filters.update(filters)
    paper = {
        "phone": views.PAPER_PHONE, "round": views.PAPER_ROUND, "round_size": formats.size(PAPER_GIB_PER_ROUND * GIB)
    }  # fmt: skip
    environment.globals.update(
        paper=paper,
        outcomes=views.OUTCOMES,
        has_epsilon=has_epsilon,
        neighbours=NEIGHBOURS,
        nothing_spent=NOTHING_SPENT,
    )
    return environment


def _printable(value: object) -> object:
    """Replace control and bidirectional characters: text in the ledger may come from a hostile file."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return "".join(
        character if character.isprintable() or character in "\n\N{NO-BREAK SPACE}" else "\ufffd" for character in value
    )
