"""Every path of this server for its OpenAPI document: parameters, bodies, answers. A test holds it to the routes."""

from collections.abc import Mapping

from phonograd.server_agg.openapi.parts import (
    CHECKSUM,
    NUMBER,
    OCTETS,
    OFFSET,
    PHONE,
    RETRY_AFTER,
    TEXT,
    TUS,
    VERSION,
    WHO,
    Part,
    answer,
    body,
    header,
    operation,
    parameter,
    ref,
    whole,
)
from phonograd.server_agg.openapi.schemas import array, exactly

ETAG: Part = {"ETag": {"required": True, "description": "The model's SHA-256, quoted.", "schema": TEXT}}
HASH = parameter("path", "sha256", TEXT, "A model's SHA-256, 64 hex digits.")
UPLOAD_ID = parameter("path", "id", TEXT, "What the announcement answered in Location.")
NAME = parameter("path", "name", TEXT, "A phone's name.")
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PAGE = whole("Page of the table, from 1; behind the last: the last.", "page", 1)
HTML: Part = answer("A page.", TEXT, "text/html; charset=utf-8")
MODEL_PARAMETERS = (
    WHO,
    header("If-None-Match", TEXT, "The ETag of a model that is here already."),
    header("Range", TEXT, "One range of bytes; an invalid one is ignored."),
    header("If-Range", TEXT, "The ETag of the model whose part is here."),
)
MODEL_ANSWERS: Mapping[int, Part] = {
    200: answer("The model: a tensor file.", OCTETS, "application/octet-stream", ETAG),
    206: answer(
        "A part of it.",
        OCTETS,
        "application/octet-stream",
        {**ETAG, "Content-Range": {"required": True, "schema": TEXT}},
    ),
    304: answer("It is the one that is here already.", headers=ETAG),
}
TUS_HEADERS: Part = {
    **TUS,
    **{
        name: {"required": True, "schema": TEXT}
        for name in ("Tus-Version", "Tus-Extension", "Tus-Max-Size", "Tus-Checksum-Algorithm")
    },
}
CAPABILITIES = answer("What this server knows of tus.", headers=TUS_HEADERS)
UPLOAD_BODY = body("application/offset+octet-stream", OCTETS)
OVERRIDES: Part = {"type": "string", "enum": ["PATCH", "DELETE", "HEAD"]}
STANDING: Part = {**TUS, **OFFSET, "Upload-Length": {"required": True, "schema": NUMBER}}
ANNOUNCED = (
    VERSION,
    header("Upload-Length", {"type": "integer", "minimum": 1}, "Bytes of the whole update.", required=True),
    header("Upload-Metadata", TEXT, "tus's key and base64 pairs: phone, sha256, base_sha256, round."),
    header("Phonograd-Phone", TEXT, "In place of the metadata's phone."),
    CHECKSUM,
)
APPENDED = (UPLOAD_ID, VERSION, header("Upload-Offset", NUMBER, "Bytes sent so far.", required=True), CHECKSUM)
APPEND_REFUSALS = (400, 404, 408, 409, 410, 412, 413, 415, 422, 460)

PAGES: Mapping[str, Part] = {
    "/": {
        "get": operation(
            "overview", "The dashboard.", {200: HTML}, (400,),
            [whole("Phones a round, of the projection.", "phones", 10), whole("Its rounds.", "rounds", 300)],
        )
    },
    "/dashboard/live": {"get": operation("live", "The open round, as a fragment of HTML.", {200: HTML})},
    "/dashboard/rounds": {"get": operation("roundsPage", "All rounds, page by page.", {200: HTML}, (400,), [PAGE])},
    "/dashboard/rounds/{number}": {
        "get": operation(
            "roundPage", "A round and its phones.", {200: HTML}, (400, 404), [parameter("path", "number", TEXT), PAGE]
        )
    },
    "/dashboard/models": {"get": operation("modelsPage", "All models.", {200: HTML}, (400,), [PAGE])},
    "/admin": {
        "get": operation(
            "admit", "The admin link: a cookie for its key.",
            {
                303: answer(
                    "On to the dashboard.", None,
                    headers={
                        name: {"required": True, "schema": TEXT} for name in ("Location", "Set-Cookie", "Cache-Control")
                    },
                )
            },
            (), [parameter("query", "key", TEXT, "What the server printed at its start.", required=True)],
        )
    },
    "/static/{name}": {
        "get": operation(
            "static", "A file of the dashboard's own.",
            {
                200: {
                    "description": "The file.",
                    "content": {
                        media: {"schema": TEXT}
                        for media in ("text/css; charset=utf-8", "text/javascript; charset=utf-8", "image/svg+xml")
                    },
                },
                304: answer("As it is here already."),
            },
            (404,),
            [parameter("path", "name", TEXT), header("If-None-Match", TEXT)],
        )
    },
}  # fmt: skip

WATCHING: Mapping[str, Part] = {
    "/healthz": {
        "get": operation(
            "health", "Whether the server can work.",
            {200: answer("It can.", exactly({"status": {"const": "ok"}}))}, (503,),
        )
    },
    "/metrics": {
        "get": operation(
            "metrics", "For Prometheus.", {200: answer("Text exposition 0.0.4.", TEXT, METRICS_TYPE)}
        )
    },
    "/openapi.json": {"get": operation("openapi", "This document.", {200: answer("OpenAPI 3.1.", {"type": "object"})})},
    "/v1/report": {"get": operation("report", "What each round cost.", {200: answer("The report.", ref("Report"))})},
    "/v1/report.csv": {
        "get": operation(
            "reportCsv", "The same as CSV.", {200: answer("A line a round.", TEXT, "text/csv; charset=utf-8")}
        )
    },
    "/v1/report/rounds/{number}": {
        "get": operation(
            "phonesOfRound", "What each phone cost in a round.",
            {200: answer("The phones.", exactly({"round": NUMBER, "phones": array("PhoneCost")}))},
            (404,), [parameter("path", "number", NUMBER)],
        )
    },
    "/v1/audit": {
        "get": operation(
            "audit", "What administrators did and what was refused, newest first.",
            {200: answer("The entries.", exactly({"entries": array("AuditEntry")}))}, (400,),
            [whole("At most so many.", "limit", 100), whole("Only those with a lower id.", "before")],
        )
    },
}  # fmt: skip

MODELS: Mapping[str, Part] = {
    "/v1/round": {
        "get": operation(
            "round", "The open round.",
            {200: answer("With its place, if a phone names itself.", ref("RoundForPhone"), headers=RETRY_AFTER)},
            (), [WHO],
        )
    },
    "/v1/model": {"get": operation("currentModel", "The open round's model.", MODEL_ANSWERS, (416,), MODEL_PARAMETERS)},
    "/v1/models": {
        "get": operation(
            "models", "All models.", {200: answer("Oldest first.", exactly({"models": array("Model")}))}
        )
    },
    "/v1/models/{sha256}": {
        "get": operation("model", "A model.", MODEL_ANSWERS, (404, 416), (HASH, *MODEL_PARAMETERS))
    },
    "/v1/models/{sha256}/quality": {
        "post": operation(
            "reportQuality", "What an evaluator found a model to be worth; replaces the same metric's earlier value.",
            {200: answer("It is written down.", ref("FigureTaken"))}, (400, 404, 413), [HASH],
            body("application/json", ref("Figure")),
        )
    },
    "/v1/rollback": {
        "post": operation(
            "rollback", "Go back to the model that a round ended with; 0: the exported one.",
            {200: answer("The round that is open now.", ref("OpenRound"))}, (400, 404),
            [{**whole("The round's number.", "round"), "required": True}],
        )
    },
    "/v1/discard": {
        "post": operation(
            "discard", "Delete the updates that are kept of a round that failed.",
            {200: answer("How many.", exactly({"round": NUMBER, "discarded": NUMBER}))}, (400, 404),
            [{**whole("The round's number.", "round"), "required": True}],
        )
    },
}  # fmt: skip

UPDATES: Mapping[str, Part] = {
    "/v1/updates": {
        "post": operation(
            "sendUpdate", "An update in one request, with Content-Length; sending it again gives the same receipt.",
            {201: answer("It counts.", ref("Receipt"))}, (400, 408, 409, 411, 413, 422),
            [
                PHONE,
                header(
                    "Content-Digest", {"type": "string", "pattern": "^sha-256=:[A-Za-z0-9+/]{43}=:$"},
                    "Of the body, RFC 9530; other algorithms may stand beside it.", required=True,
                ),
            ],
            body("application/octet-stream", OCTETS),
        )
    },
    "/v1/uploads": {
        "options": operation("tusCapabilities", "tus 1.0: what this server knows.", {204: CAPABILITIES}),
        "post": operation(
            "announceUpload", "tus creation; with a body, which is the upload's beginning.",
            {
                201: answer(
                    "It has a URL.",
                    headers={**TUS, **OFFSET, "Location": {"required": True, "schema": TEXT}},
                )
            },
            (400, 404, 408, 409, 410, 412, 413, 422, 460), ANNOUNCED,
            {**UPLOAD_BODY, "required": False},
        ),
    },
    "/v1/uploads/{id}": {
        "options": operation("tusCapabilitiesOfUpload", "As without an id.", {204: CAPABILITIES}, (), [UPLOAD_ID]),
        "head": operation(
            "uploadOffset", "How many bytes of an upload are here.",
            {200: answer("It goes on from Upload-Offset.", headers=STANDING)},
            (404, 410, 412), [UPLOAD_ID, VERSION],
        ),
        "get": operation(
            "uploadOutcome", "What has become of an upload.", {200: answer("Its state.", ref("Upload"))}, (404,),
            [UPLOAD_ID],
        ),
        "patch": operation(
            "appendToUpload", "More bytes of an upload; the last of them settle it.",
            {204: answer("They are here.", headers={**TUS, **OFFSET})}, APPEND_REFUSALS, APPENDED, UPLOAD_BODY,
        ),
        "delete": operation(
            "giveUploadUp", "tus termination.", {204: answer("It is gone.", headers=TUS)}, (403, 404, 412),
            [UPLOAD_ID, VERSION],
        ),
        "post": operation(
            "uploadOverridden", "PATCH, DELETE or HEAD for networks that do not let them through.",
            {
                200: answer("As HEAD answers.", headers={**TUS, **OFFSET}),
                204: answer("As PATCH or DELETE answers.", headers=TUS),
            },
            (*APPEND_REFUSALS, 403, 405),
            [
                UPLOAD_ID, VERSION, CHECKSUM, header("Upload-Offset", NUMBER),
                header("X-HTTP-Method-Override", OVERRIDES, required=True),
            ],
            {**UPLOAD_BODY, "required": False},
        ),
    },
}  # fmt: skip

PHONES: Mapping[str, Part] = {
    "/v1/phones": {
        "get": operation(
            "phones", "All enrolled.", {200: answer("By name.", exactly({"phones": array("Phone")}))}, (403,)
        ),
        "post": operation(
            "enrolPhone", "Enrol one.", {201: answer("Its token, shown this once.", ref("IssuedToken"))},
            (400, 403, 409, 413), (), body("application/json", ref("NewPhone")),
        ),
    },
    "/v1/phones/{name}": {
        "delete": operation(
            "revokePhone", "Revoke one with all its tokens.",
            {200: answer("It is revoked.", exactly({"name": TEXT, "tokens_revoked": NUMBER}))}, (403, 404), [NAME],
        )
    },
    "/v1/phones/{name}/tokens": {
        "post": operation(
            "rotateToken", "A fresh token for one.", {201: answer("The token, shown this once.", ref("IssuedToken"))},
            (400, 403, 404, 413), [NAME], body("application/json", ref("NewToken"), required=False),
        )
    },
}  # fmt: skip

PATHS: Mapping[str, Part] = {**MODELS, **UPDATES, **WATCHING, **PHONES, **PAGES}
