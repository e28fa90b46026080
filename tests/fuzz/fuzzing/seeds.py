"""Sound bytes of every form, to start spoiling from: recorded traces, and a few made by hand.

Knows how a trace looks in OTLP, Tempo and Jaeger. Deterministic.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any, Final

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from otel_eval.otlp.otlp_json import rewrite
from otel_eval.otlp.protobuf import read_traces
from tests.fuzz.fuzzing.targets import segment

__all__ = ["seeds"]

FOLDER: Final = Path(__file__).parents[2] / "traces"
RECORDED: Final = (
    "google_adk_default",
    "openai_agents_otelv2",
    "crewai_openinference",
    "pydantic_ai_v5",
    "mcp_python_sdk",
)
TRACE, ROOT, TOOL = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "00f067aa0ba902b7"
DEEP: Any = {"stringValue": "deep"}
for _ in range(70):
    DEEP = {"arrayValue": {"values": [DEEP]}}
ATTRIBUTES: Final = [
    {"key": "gen_ai.operation.name", "value": {"stringValue": "execute_tool"}},
    {"key": "gen_ai.tool.name", "value": {"stringValue": "search"}},
    {
        "key": "gen_ai.tool.call.arguments",
        "value": {"stringValue": '{"q": "x1", "n": [1, 2.5, null]}'},
    },
    {
        "key": "k",
        "value": {"kvlistValue": {"values": [{"key": "b", "value": {"bytesValue": "AAEC"}}]}},
    },
    {
        "key": "n",
        "value": {
            "arrayValue": {
                "values": [{"intValue": "-7"}, {"doubleValue": "NaN"}, {"boolValue": True}]
            }
        },
    },
]
SPANS: Final = [
    {
        "traceId": TRACE,
        "spanId": ROOT,
        "name": "invoke_agent a",
        "startTimeUnixNano": "1",
        "endTimeUnixNano": "9000000",
    },
    {
        "traceId": TRACE,
        "spanId": TOOL,
        "parentSpanId": ROOT,
        "name": "execute_tool search",
        "kind": 1,
        "flags": 256,
        "startTimeUnixNano": "1000000",
        "endTimeUnixNano": "2000000",
        "attributes": ATTRIBUTES,
        "status": {"code": 2, "message": "no"},
        "events": [{"timeUnixNano": "5", "name": "exception", "attributes": ATTRIBUTES[:2]}],
    },
    {
        "traceId": TRACE,
        "spanId": "ffffffffffffffff",
        "parentSpanId": ROOT,
        "attributes": [{"key": "d", "value": DEEP}],
    },
]
RECORD: Final = {
    "traceId": TRACE,
    "spanId": TOOL,
    "eventName": "gen_ai.client.inference.operation.details",
    "body": {"kvlistValue": {"values": [{"key": "input", "value": {"stringValue": "hello"}}]}},
    "attributes": ATTRIBUTES,
}
SERVICE: Final = {"attributes": [{"key": "service.name", "value": {"stringValue": "bot"}}]}
MADE: Final = {
    "resourceSpans": [
        {"resource": SERVICE, "scopeSpans": [{"scope": {"name": "agent"}, "spans": SPANS}]}
    ]
}
LOGS: Final = {
    "resourceLogs": [
        {"resource": SERVICE, "scopeLogs": [{"scope": {"name": "agent"}, "logRecords": [RECORD]}]}
    ]
}
POINT: Final = {
    "asInt": "3",
    "timeUnixNano": "5",
    "exemplars": [{"traceId": TRACE, "spanId": ROOT, "asDouble": 1.5}],
}
METRICS: Final = {
    "resourceMetrics": [
        {"scopeMetrics": [{"metrics": [{"name": "m", "gauge": {"dataPoints": [POINT]}}]}]}
    ]
}
TAGS: Final = [
    {"key": "gen_ai.tool.name", "type": "string", "value": "search"},
    {"key": "span.kind", "type": "string", "value": "client"},
    {"key": "otel.status_code", "type": "string", "value": "ERROR"},
]
JAEGER: Final = {
    "data": [
        {
            "traceID": TRACE,
            "spans": [
                {
                    "traceID": TRACE,
                    "spanID": TOOL,
                    "operationName": "execute_tool search",
                    "references": [{"refType": "CHILD_OF", "traceID": TRACE, "spanID": ROOT}],
                    "startTime": 1,
                    "duration": 5,
                    "tags": TAGS,
                    "logs": [{"timestamp": 2, "fields": TAGS[:1]}],
                    "processID": "p1",
                }
            ],
            "processes": {"p1": {"serviceName": "bot", "tags": TAGS[:1]}},
        }
    ]
}


def _recorded() -> list[dict[str, Any]]:
    return [json.loads((FOLDER / f"{name}.json").read_text()) for name in RECORDED]


def _text(document: Any) -> bytes:
    return json.dumps(document).encode()


def seeds() -> dict[str, list[bytes]]:
    """Sound inputs by target."""
    traces = [MADE, *_recorded()]
    as_json = [_text(each) for each in traces]
    as_protobuf = [rewrite("traces", each)[0] for each in traces]
    logs = rewrite("logs", LOGS)[0]
    spans = [
        payload for _, _, (_, payload, _), _ in read_traces(as_protobuf[0] + as_protobuf[1]).spans
    ]
    row = b"".join(
        bytes([len(each) & 0x7F | 0x80, len(each) >> 7]) + each
        for each in as_protobuf
        if len(each) < 16384
    )
    tempo = _text({"batches": MADE["resourceSpans"]})
    chunks = (
        b"".join(b"%x\r\n%s\r\n" % (len(each), each) for each in spans[:3])
        + b"0\r\nTrailer: x\r\n\r\n"
    )
    zipped = [gzip.compress(each, mtime=0) for each in as_json]
    lines = b"\n".join(as_json[:2]) + b"\n"
    return {
        "traces-protobuf": as_protobuf,
        "logs-protobuf": [logs, logs * 2, ExportLogsServiceRequest().SerializeToString()],
        "traces-json": as_json,
        "logs-json": [_text(LOGS)],
        "metrics-json": [_text(METRICS)],
        "gzip": [*zipped, zipped[0] * 2, gzip.compress(bytes(2_000_000), mtime=0)],
        "chunked": [chunks],
        "stored": [
            as_json[0],
            lines,
            as_protobuf[0],
            row,
            tempo,
            _text(JAEGER),
            *zipped[:1],
            _text(LOGS),
            logs,
        ],
        "span": spans,
        "journal": [segment()],
        "framed-alike": as_protobuf,
        "split-alike": as_protobuf,
        "weighed-alike": [*as_protobuf, logs],
    }
