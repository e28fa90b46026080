"""Products at the level of sockets: Phoenix and MLflow answer as the real servers were measured,
the others as documented.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import unquote

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.support.waiting import LIMIT_S

__all__ = [
    "HANG",
    "FakeDatadog",
    "FakeLangfuse",
    "FakeLangsmith",
    "FakeLogfire",
    "FakeMlflow",
    "FakePhoenix",
    "FakeProduct",
    "serving",
]

HANG: Final = -1
"""In `FakeProduct.script`: no response until the product is closed."""

Answer = tuple[int, Any]


class FakeProduct:
    """What every product has in common: requests are recorded, and scripted failures go first.

    Attributes:
        script: statuses to answer next, one for each request; afterwards the product works.
        status: what to answer every request, or 0.
        headers: sent with each failure.
        requests: method, path and body of each request.
        sent_headers: the headers of each request.
        url: where it listens.
    """

    def __init__(self) -> None:
        self.script: list[int] = []
        self.status = 0
        self.headers: dict[str, str] = {}
        self.requests: list[tuple[str, str, Any]] = []
        self.sent_headers: list[dict[str, str]] = []
        self.url = ""
        self.lock = threading.Lock()
        self.closing = threading.Event()

    def decode(self, sent: bytes) -> Any:
        """The body of a request."""
        return json.loads(sent)

    def handle(self, method: str, path: str, body: Any, headers: dict[str, str]) -> Answer:
        """The response to a request."""
        with self.lock:
            self.requests.append((method, path, body))
            self.sent_headers.append(headers)
            status = (self.script.pop(0) if self.script else 0) or self.status
        if status == HANG:
            self.closing.wait(2 * LIMIT_S)
            return 503, {}
        if status:
            return status, {"detail": "scripted"}
        with self.lock:
            return self.answer(method, path, body)

    def answer(self, method: str, path: str, body: Any) -> Answer:
        """What the product does."""
        raise NotImplementedError


class FakePhoenix(FakeProduct):
    """Annotations of spans and traces, by target, name and identifier.

    Attributes:
        annotations: what is stored.
        rejected: names that are refused with 422 for the whole request.
        poison: names at which the server fails with 500.
        configs: configurations of annotations by id.
        assigned: project and id of each that was assigned.
    """

    def __init__(self) -> None:
        super().__init__()
        self.annotations: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.rejected: set[str] = set()
        self.poison: set[str] = set()
        self.configs: dict[str, dict[str, Any]] = {}
        self.assigned: list[tuple[str, str]] = []

    def _configure(self, method: str, path: str, body: Any) -> Answer:
        if method == "GET":
            return 200, {"data": [each | {"id": key} for key, each in self.configs.items()]}
        if method == "POST":
            if any(each["name"] == body["name"] for each in self.configs.values()):
                return 409, {"detail": "taken"}
            self.configs[key := f"id={len(self.configs)}"] = body
            return 200, {"data": body | {"id": key}}
        project, _, key = map(unquote, path.removeprefix("/v1/projects/").split("/"))
        self.assigned.append((project, key))
        return 200, {"data": self.configs[key]}

    def answer(self, method: str, path: str, body: Any) -> Answer:
        """Store all or nothing."""
        if "annotation_configs" in path:
            return self._configure(method, path, body)
        route, _, query = path.partition("?")
        target = {"/v1/span_annotations": "span_id", "/v1/trace_annotations": "trace_id"}.get(route)
        if method != "POST" or target is None:
            return 404, {"detail": "Not Found"}
        if query != "sync=false":
            # with sync=true: here no span is stored yet
            return 404, {"detail": "Spans do not exist."}
        given = body["data"]
        if any(each["name"] == "note" for each in given):
            return 400, {"detail": "The name 'note' is reserved"}
        if self.rejected.intersection(each["name"] for each in given):
            return 422, {"detail": "unprocessable"}
        if self.poison.intersection(each["name"] for each in given):
            return 500, {"detail": "Internal Server Error"}
        for each in given:
            self.annotations[each[target], each["name"], each["identifier"]] = each
        return 200, {"data": []}


class FakeMlflow(FakeProduct):
    """Assessments of traces that are there.

    Attributes:
        assessments: what is stored, by its id.
        traces: ids of the traces that are there, `tr-…`; None: every one is.
        poison: names at which the server fails with 500.
        racing: creates the assessment itself before the next POST does, as another client would.
    """

    def __init__(self) -> None:
        super().__init__()
        self.assessments: dict[str, dict[str, Any]] = {}
        self.traces: set[str] | None = None
        self.poison: set[str] = set()
        self.racing = False

    def answer(self, method: str, path: str, body: Any) -> Answer:
        """Create or update one assessment."""
        parts = path.split("/")
        if parts[:5] != ["", "api", "3.0", "mlflow", "traces"] or parts[6] != "assessments":
            return 404, "<!doctype html>"
        trace, given = parts[5], body["assessment"]
        if self.traces is not None and trace not in self.traces:
            return 404, {
                "error_code": "RESOURCE_DOES_NOT_EXIST",
                "message": f"Trace with ID {trace} not found",
            }
        if given["assessment_name"] in self.poison:
            return 500, {"error_code": "INTERNAL_ERROR", "message": "boom"}
        return (
            self._create(given)
            if method == "POST"
            else self._update(parts[7], given, body["update_mask"])
        )

    def _create(self, given: dict[str, Any]) -> Answer:
        key = given["assessment_id"]
        if self.racing:
            self.racing, self.assessments[key] = False, {"assessment_name": "another client's"}
        if key in self.assessments:
            return 500, {
                "error_code": "BAD_REQUEST",
                "message": "(sqlite3.IntegrityError) UNIQUE constraint failed: assessments",
            }
        self.assessments[key] = given
        return 200, {"assessment": given}

    def _update(self, key: str, given: dict[str, Any], mask: str) -> Answer:
        if key not in self.assessments:
            return 404, {
                "error_code": "RESOURCE_DOES_NOT_EXIST",
                "message": f"Assessment with ID '{key}' not found",
            }
        names = {"assessmentName": "assessment_name"}
        self.assessments[key] |= {
            names.get(each, each): given[names.get(each, each)] for each in mask.split(",")
        }
        return 200, {"assessment": self.assessments[key]}


class FakeLangfuse(FakeProduct):
    """Scores by their id, as its documentation has it.

    Attributes:
        scores: what is stored.
        poison: names at which the server fails with 500.
    """

    def __init__(self) -> None:
        super().__init__()
        self.scores: dict[str, dict[str, Any]] = {}
        self.poison: set[str] = set()

    def answer(self, method: str, path: str, body: Any) -> Answer:
        """Create or update a score; its trace need not be there."""
        if (method, path) != ("POST", "/api/public/scores"):
            return 404, {"message": "Not Found"}
        if body["name"] in self.poison:
            return 500, {"message": "Internal Server Error"}
        kinds = {"NUMERIC": (int, float), "CATEGORICAL": str}
        if not isinstance(body["value"], kinds[body["dataType"]]):
            return 400, {"message": "Invalid request data"}
        self.scores[body["id"]] = body
        return 200, {"id": body["id"]}


class FakeLangsmith(FakeProduct):
    """Feedback by its id, as its documentation has it.

    Attributes:
        feedback: what is stored.
        runs: ids of the runs that are there; None: every one is.
        poison: names at which the server fails with 500.
        racing: creates the feedback itself before the next POST does.
    """

    def __init__(self) -> None:
        super().__init__()
        self.feedback: dict[str, dict[str, Any]] = {}
        self.runs: set[str] | None = None
        self.poison: set[str] = set()
        self.racing = False

    def answer(self, method: str, path: str, body: Any) -> Answer:
        """Create or update feedback on a run that is there."""
        key = path.removeprefix("/api/v1/feedback").removeprefix("/")
        if method == "PATCH":
            if key not in self.feedback:
                return 404, {"detail": "Feedback not found"}
            self.feedback[key] |= body
            return 200, self.feedback[key]
        if (method, path) != ("POST", "/api/v1/feedback") or (
            self.runs is not None and body["run_id"] not in self.runs
        ):
            return 404, {"detail": "Run not found"}
        if body["key"] in self.poison:
            return 500, {"detail": "Internal Server Error"}
        if self.racing:
            self.racing, self.feedback[body["id"]] = (
                False,
                {"key": body["key"], "run_id": body["run_id"]},
            )
        if body["id"] in self.feedback:
            return 409, {"detail": "Conflict"}
        self.feedback[body["id"]] = body
        return 200, body


class FakeDatadog(FakeProduct):
    """Evaluations, as its documentation has it.

    Attributes:
        metrics: what is stored.
    """

    def __init__(self) -> None:
        super().__init__()
        self.metrics: list[dict[str, Any]] = []

    def answer(self, method: str, path: str, body: Any) -> Answer:
        """Store all or nothing."""
        if (method, path) != ("POST", "/api/intake/llm-obs/v2/eval-metric"):
            return 404, {"errors": ["not found"]}
        metrics = body["data"]["attributes"]["metrics"]
        if any(f"{each['metric_type']}_value" not in each for each in metrics):
            return 400, {"errors": ["no value"]}
        self.metrics += metrics
        return 202, {}


class FakeLogfire(FakeProduct):
    """Spans, as OTLP and its documentation have it.

    Attributes:
        spans: what is stored: each span's attributes, by ids of trace, parent and span.
        rejected: names that are rejected by a partial success.
    """

    def __init__(self) -> None:
        super().__init__()
        self.spans: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.rejected: set[str] = set()

    def decode(self, sent: bytes) -> Any:
        """The spans of a request with their resources."""
        groups = ExportTraceServiceRequest.FromString(sent).resource_spans
        return [
            (span, group.resource)
            for group in groups
            for scope in group.scope_spans
            for span in scope.spans
        ]

    def answer(self, method: str, path: str, body: Any) -> Answer:
        """Store what is not rejected."""
        if (method, path) != ("POST", "/v1/traces"):
            return 404, {}
        response = ExportTraceServiceResponse()
        for span, resource in body:
            if span.name in self.rejected:
                response.partial_success.rejected_spans += 1
                continue
            ids = (span.trace_id.hex(), span.parent_span_id.hex(), span.span_id.hex())
            assert span.start_time_unix_nano == span.end_time_unix_nano
            self.spans[ids] = {
                "name": span.name,
                "resource": {each.key: each.value.string_value for each in resource.attributes},
                "at": span.end_time_unix_nano,
            } | {
                each.key: getattr(each.value, each.value.WhichOneof("value"))
                for each in span.attributes
            }
        return 200, response.SerializeToString()


@contextmanager
def serving(product: FakeProduct, wrap: Callable[[Any], Any] = lambda sock: sock) -> Iterator[Any]:
    """The product, listening on a free port of the loopback address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # one write for each response: two would wait for each other

        def _serve(self) -> None:
            sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {key.lower(): value for key, value in self.headers.items()}
            status, answer = product.handle(
                self.command, self.path, product.decode(sent) if sent else None, headers
            )
            body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            for key, value in product.headers.items() if status >= 300 else ():
                self.send_header(key, value)
            self.send_header("Content-Type", self.headers["Accept"])
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_PATCH = do_PUT = do_GET = do_DELETE = _serve

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign,assignment]
    server.socket = wrap(server.socket)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    product.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield product
    finally:
        product.closing.set()
        server.shutdown()
        server.server_close()
        thread.join(300)
