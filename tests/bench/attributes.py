"""What each attribute costs a run that a configuration asks for, by `match`, as a label or as a
reference.

Run it by hand: ``python tests/bench/attributes.py``. 20-span runs evaluated by one scorer, on one
thread; the least CPU time of many rounds, taken in turn with the same runs and nothing asked for.
An attribute is on the run's own span, on its resource, or nowhere.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from load import batches
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_eval.app.build import build_engine
from otel_eval.assembly import Limits, TraceBuffer
from otel_eval.config import load
from otel_eval.engine import Engine
from otel_eval.interfaces import ClosedTrace
from otel_eval.otlp.protobuf import read_traces

ROUNDS = 60
MOST = 8


def traces() -> list[ClosedTrace]:
    """256 runs, each with attributes of its own and of its resource."""
    buffer = TraceBuffer(Limits(decision_wait_s=0.0))
    for body in batches(10, fat=False):
        request = ExportTraceServiceRequest.FromString(body)
        for group in request.resource_spans:
            for number in range(MOST):
                group.resource.attributes.add(
                    key=f"resource.{number}"
                ).value.string_value = f"value {number}"
            for span in group.scope_spans[0].spans:
                for number in range(0 if span.parent_span_id else MOST):
                    span.attributes.add(key=f"span.{number}").value.string_value = f"value {number}"
        buffer.push_many(read_traces(request.SerializeToString()).spans, 0.0)
    return list(buffer.due(3600.0))


def asking(keys: Sequence[str]) -> Engine:
    """One scorer; and attributes that are asked for but not looked at, since what is measured is
    the reading.
    """
    scorers = [{"type": "tool_call_order", "expected": ["search", "fetch", "refund"]}]
    match = {"service": "nobody", "attributes": dict.fromkeys(keys, "*")}
    evaluations = [
        {"name": "bench", "scorers": scorers},
        {"name": "other", "match": match, "scorers": scorers},
    ]
    return build_engine(load({"evaluations": evaluations}))


def labelling() -> Engine:
    """A label that is looked for in the run's input and output too."""
    scorers = [
        {"type": "tool_call_order", "expected": ["search", "fetch", "refund"]},
        {"type": "label_distribution", "label": "span.0"},
    ]
    return build_engine(load({"evaluations": [{"name": "bench", "scorers": scorers}]}))


def main() -> None:
    """Print a line for each place and number."""
    closed = traces()
    cases = {"nothing": asking([])}
    for place in ("span", "resource", "nowhere"):
        for number in (1, 4, MOST):
            cases[f"{number} of {place}"] = asking([f"{place}.{each}" for each in range(number)])
    cases["a label"] = labelling()
    least = dict.fromkeys(cases, float("inf"))
    for _ in range(ROUNDS):
        for name, engine in cases.items():
            began = time.process_time()
            for trace in closed:
                engine.evaluate(trace)
                trace.history.forget(trace.history.runs)
            least[name] = min(least[name], time.process_time() - began)
    base = least["nothing"] / len(closed) * 1e6
    print(f"nothing asked for: {base:.1f} us a run of 20 spans")
    for name, seconds in least.items():
        number = name.split()[0]
        if number.isdigit():
            more = seconds / len(closed) * 1e6 - base
            print(f"  {name:14} {more:+6.2f} us a run, {more / int(number):5.2f} for each")
    print(
        f"  a label_distribution: {least['a label'] / len(closed) * 1e6 - base:+.1f} us a run,"
        " input and output read with it"
    )


if __name__ == "__main__":
    main()
