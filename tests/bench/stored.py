"""What `otel-eval replay` takes for large inputs: time, time to the first row, peak memory.

    python tests/bench/stored.py [--mib 1024] [--max-bytes 512MiB] [--document] [--small] [--keep
    PATH]

The input is generated: the Collector's JSON Lines, 512 spans of eight interleaved traces of 20
spans a line, or all of it as one JSON document (`--document`), or 168,741 traces of one span
(`--small`).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from base64 import b64decode
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.json_format import MessageToDict
from load import _cycle
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

CONFIG = {
    "evaluations": [
        {"name": "bench", "scorers": [{"type": "tool_call_count", "criteria": {"search": "<= 9"}}]}
    ]
}
SMALL_TRACES = 168_741
_ID = re.compile(rb'(?<="traceId":")([0-9a-f]{32})(?=")')


def lines() -> Iterator[bytes]:
    """JSON of requests without end; every trace id occurs in one cycle only."""
    templates = [_json(batch) for batch in _cycle(fat=False)]
    rng = random.Random(3)
    while True:
        fresh: defaultdict[bytes, bytes] = defaultdict(lambda: rng.randbytes(16).hex().encode())
        for template in templates:
            parts = _ID.split(template)
            parts[1::2] = map(fresh.__getitem__, parts[1::2])
            yield b"".join(parts)


def _json(batch: bytes) -> bytes:
    document = MessageToDict(ExportTraceServiceRequest.FromString(batch))
    for scope in document["resourceSpans"][0]["scopeSpans"]:
        for span in scope["spans"]:
            for key in ("traceId", "spanId", "parentSpanId"):
                if key in span:
                    span[key] = b64decode(span[key]).hex()
    return json.dumps(document, separators=(",", ":")).encode()


def write(path: Path, options: argparse.Namespace) -> None:
    with path.open("wb") as out:
        if options.small:
            for number in range(SMALL_TRACES):
                attributes = [
                    {"key": "gen_ai.operation.name", "value": {"stringValue": "invoke_agent"}}
                ]
                span = {
                    "traceId": f"{number + 1:032x}",
                    "spanId": "ab" * 8,
                    "name": "invoke_agent a",
                    "attributes": attributes,
                }
                span |= {
                    "startTimeUnixNano": "1700000000000000000",
                    "endTimeUnixNano": "1700000001000000000",
                }
                out.write(
                    json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()
                    + b"\n"
                )
            return
        size = options.mib * 2**20
        if options.document:
            out.write(b'{"resourceSpans":[')
        for number, line in enumerate(lines()):
            if number % 10 == 0 and out.tell() > size:
                break
            if options.document:
                line = (b"," if number else b"") + line[len(b'{"resourceSpans":[') : -len(b"]}")]
            out.write(line if options.document else line + b"\n")
        if options.document:
            out.write(b"]}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--max-bytes", default="512MiB")
    parser.add_argument("--document", action="store_true")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--keep", help="generate the input here, or use it if it is there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(options.keep or f"{folder}/traces.json")
        if not path.exists():
            write(path, options)
        config = Path(folder) / "eval.json"
        config.write_text(
            json.dumps(
                CONFIG | {"traces": {"max_bytes": options.max_bytes, "max_bytes_per_trace": "1MiB"}}
            )
        )
        command = [
            sys.executable,
            "-m",
            "otel_eval",
            "replay",
            "--format",
            "json",
            "--config",
            str(config),
            str(path),
        ]
        begun = time.monotonic()
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"}
        )
        assert process.stdout
        first, rows, early = 0.0, 0, 0
        for row in process.stdout:
            first = first or time.monotonic() - begun
            rows += 1
            early += b'"overflow"' in row
        code = process.wait()
        took = time.monotonic() - begun
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        f"{path.stat().st_size / 2**20 if options.keep else options.mib:.0f} MiB, max_bytes"
        f" {options.max_bytes}: {took:.1f} s, CPU {used.ru_utime + used.ru_stime:.1f} s, first row"
        f" after {first:.1f} s, peak {used.ru_maxrss / 1024:.0f} MiB, {rows} rows, {early}"
        f" overflow, exit code {code}"
    )


if __name__ == "__main__":
    main()
