"""What evaluators find a model to be worth, reported from wherever they run."""

import json
import math
from collections.abc import Mapping
from typing import Any

from sqlalchemy.dialects.sqlite import insert
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from phonograd.device_runtime.client.protocol import METRIC
from phonograd.server_agg.http.lanes import Lanes
from phonograd.server_agg.http.requests import small_body
from phonograd.server_agg.refusals import RequestError
from phonograd.server_agg.storage.audit import record
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.tables import Model, Quality

EXPECTED = 'a JSON object such as {"metric": "perplexity general", "value": 109.1} expected'


class QualityRoute:
    """The handler of POST /v1/models/{sha256}/quality over a ledger."""

    def __init__(self, ledger: Ledger, lanes: Lanes):
        self._ledger = ledger
        self._lanes = lanes

    async def report(self, request: Request) -> Response:
        """Take one figure; another of the same metric replaces it."""
        metric, value = _figure(await _document(request))
        sha256 = request.path_params["sha256"]
        document = await self._lanes.writing.run(self._write, sha256, metric, value, request.state.actor)
        return JSONResponse(document)

    def _write(self, sha256: str, metric: str, value: float, actor: str) -> dict[str, object]:
        with self._ledger.writing() as session:
            if session.get(Model, sha256) is None:
                raise RequestError(404, f"model {sha256[:80]} is not one of this server's; see /v1/models")
            now = self._ledger.clock()
            row = insert(Quality).values(sha256=sha256, metric=metric, value=value, reported_at=now)
            session.execute(
                row.on_conflict_do_update(
                    index_elements=["sha256", "metric"], set_={"value": value, "reported_at": now}
                )
            )
            record(session, now, actor, "quality", sha256, f"{metric}: {value:g}")
        return {"sha256": sha256, "metric": metric, "value": value, "reported_at": now}


async def _document(request: Request) -> Mapping[str, Any]:
    body = await small_body(request)
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestError(400, f"{EXPECTED}, found what is no JSON") from error
    if not isinstance(found, dict) or found.keys() != {"metric", "value"}:
        raise RequestError(400, f"{EXPECTED}, found something else")
    return found


def _figure(document: Mapping[str, Any]) -> tuple[str, float]:
    metric, value = document["metric"], document["value"]
    if not (isinstance(metric, str) and METRIC.match(metric)):
        raise RequestError(400, "metric: 1 to 64 printable ASCII characters expected, found something else")
    number = math.nan
    if isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value) if abs(value) < 1e300 else math.inf
    if not math.isfinite(number):
        raise RequestError(400, "value: a finite number below 1e300 expected, found something else")
    return metric, number
