"""Print the modules that one gRPC request passes through, from its arrival to a line of JSON, in
order of first call.

    python tests/bench/modules_on_path.py [RECORDED_TRACE]

The server runs in this process; the first request warms up and is not counted, so that imports and
lazy set-up do not appear.
"""

from __future__ import annotations

import base64
import json
import re
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

import grpc
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

ROOT = Path(__file__).parents[2]
METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
SCORERS = [
    {"type": "tool_call_order", "expected": ["get_weather"]},
    {"type": "tool_errors"},
    {"type": "time_cost"},
]


def in_base64(found: re.Match[str]) -> str:
    """An id as protobuf's own JSON writes it; OTLP's is hexadecimal."""
    return f'{found[1]}"{base64.b64encode(bytes.fromhex(found[2])).decode()}"'


def request(path: Path, number: int) -> bytes:
    """The recorded trace, with ids of its own for each request."""
    text = re.sub(
        r'("(?:traceId|spanId|parentSpanId)": *)"([0-9a-f]+)"',
        in_base64,
        path.read_text(encoding="utf-8"),
    )
    document = json.loads(text)
    message = ParseDict(
        {"resourceSpans": document["resourceSpans"]},
        ExportTraceServiceRequest(),
        ignore_unknown_fields=True,
    )
    for resource in message.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                span.trace_id = number.to_bytes(16, "big")
    return message.SerializeToString()


class Recorder:
    """Notes the file of each Python function that is called, on every thread, while it is on."""

    def __init__(self) -> None:
        self.on = False
        self.files: dict[str, None] = {}

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if self.on and event == "call":
            self.files.setdefault(frame.f_code.co_filename)


def main(path: Path) -> None:
    """Two requests; the modules of the second."""
    from otel_eval.app.server import Server
    from otel_eval.config import load

    recorder = Recorder()
    threading.setprofile(recorder)
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder) / "results.jsonl"
        config = load(
            {
                "traces": {"decision_wait": "0s", "grace_period": "0s"},
                "evaluations": [{"name": "path", "scorers": SCORERS}],
                "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": "127.0.0.1:0"}}}},
                "exporters": {"jsonl": {"path": str(lines)}},
            }
        )
        server = Server(config)
        bound = server.start()
        try:
            with grpc.insecure_channel(bound.grpc or "") as channel:
                call = channel.unary_unary(
                    METHOD, request_serializer=bytes, response_deserializer=bytes
                )
                for number in (1, 2):
                    recorder.on = number == 2
                    call(request(path, number), timeout=10)
                    deadline = time.monotonic() + 20
                    while (
                        number * len(SCORERS) > lines.read_text(encoding="utf-8").count("\n")
                        and time.monotonic() < deadline
                    ):
                        time.sleep(0.01)
            recorder.on = False
        finally:
            server.stop(5.0)
    package = str(ROOT / "otel_eval") + "/"
    modules = [file.removeprefix(package) for file in recorder.files if file.startswith(package)]
    print(*modules, f"{len(modules)} modules", sep="\n")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "tests/traces/pydantic_ai_v5.json")
