"""What the console exporter of this SDK prints, read as a file of traces: the same spans but for
what it leaves out.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, Status, StatusCode

from otel_eval import Scored
from otel_eval.app import stored_traces
from otel_eval.config import load
from otel_eval.errors import InputError
from otel_eval.interfaces import SpanReader, Wanted
from otel_eval.otlp.protobuf import SpanBatch, read_traces
from otel_eval.sources.files import CollectedMessages
from otel_eval.sources.warehouse import read_rows
from tests.support.listeners import NO_PROBLEMS
from tests.support.stored_files import read_file

ALL = Wanted(frozenset(), ("",))
TOOL = {
    "gen_ai.operation.name": "execute_tool",
    "gen_ai.tool.name": "search",
    "on": True,
    "n": 3,
    "f": 1.5,
    "l": ["a", "b"],
}


def record(formatter: Callable[[ReadableSpan], str] | None = None) -> tuple[str, bytes]:
    """An agent run with a failed call: as the console exporter prints it, and as OTLP protobuf."""
    printed, kept = io.StringIO(), InMemorySpanExporter()
    console = (
        ConsoleSpanExporter(out=printed, formatter=formatter)
        if formatter
        else ConsoleSpanExporter(out=printed)
    )
    provider = TracerProvider(
        resource=Resource.create({"service.name": "shop"}), shutdown_on_exit=False
    )
    for exporter in (console, kept):
        provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("my.agent")
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "helper"}
    with (
        tracer.start_as_current_span("invoke_agent helper", kind=SpanKind.SERVER, attributes=agent),
        tracer.start_as_current_span("execute_tool search", attributes=TOOL) as span,
    ):
        span.add_event("note", {"k": 'a "}" of a\nbracket'})
        span.set_status(Status(StatusCode.ERROR, "no\nway"))
    return printed.getvalue(), encode_spans(kept.get_finished_spans()).SerializeToString()


def facts(framed: SpanBatch) -> list[tuple[object, ...]]:
    """All that is read of each span but its times."""

    def of(view: SpanReader) -> tuple[object, ...]:
        events = [(event.name, dict(event.attributes)) for event in view.events()]
        return (
            view.name,
            view.span_kind,
            view.status_code,
            view.status_message,
            view.attributes(ALL),
            events,
        )

    return [
        (trace_id, span_id, frame[0], frame[2].service, *of(frame[2].reader(frame[1])))
        for trace_id, span_id, frame, _ in framed.spans
    ]


def times(framed: SpanBatch) -> list[int]:
    """The start and the end of each span in turn."""
    views = [frame[2].reader(frame[1]) for _, _, frame, _ in framed.spans]
    return [time for view in views for time in (view.start_ns, view.end_ns)]


@pytest.mark.parametrize(
    "formatter",
    [None, lambda span: span.to_json(indent=None) + "\n"],
    ids=["indented", "a line each"],
)
def test_the_spans_are_those_of_otlp(
    tmp_path: Path, formatter: Callable[[ReadableSpan], str] | None
) -> None:
    """Ids, parents, kinds, times, status, attributes, events and the service."""
    printed, encoded = record(formatter)
    (tmp_path / "spans.txt").write_text(printed, encoding="utf-8")
    read, exact = list(read_file(tmp_path / "spans.txt")), read_traces(encoded)
    assert len(facts(exact)) == 2
    assert [fact for each in read for fact in facts(each)] == facts(exact)
    differences = [
        abs(one - other)
        for one, other in zip(
            [time for each in read for time in times(each)], times(exact), strict=True
        )
    ]
    assert max(differences) <= 2000


@pytest.mark.parametrize(
    ("before", "between", "after"),
    [
        ("", "", ""),
        ("the agent said: hello\n" * 1000, "", ""),
        ("", '{"answer": 1}\n', "bye\n"),
        ("\ufeff", "{\n  42\n}\n", ""),
        ('{\n    "body": "a log record"\n}\n' * 999, "", ""),
    ],
)
def test_what_the_program_prints_itself_is_skipped(
    tmp_path: Path, before: str, between: str, after: str
) -> None:
    """Text, JSON or a byte order mark; a notice counts what is no span, and no problem is
    reported.
    """
    first, second = record()[0].split("}\n{\n")
    (tmp_path / "out.txt").write_bytes(
        gzip.compress(f"{before}{first}}}\n{between}{{\n{second}{after}".encode())
    )
    problems: list[str] = []
    notices: list[str] = []
    runs = list(
        stored_traces.understand(
            [tmp_path / "out.txt"], load(None), listener=CollectedMessages(problems, notices)
        )
    )
    assert [(run.agent, [call.name for call in run.calls]) for run in runs] == [
        ("helper", ["search"])
    ]
    assert problems == []
    assert "lacks scopes, flags and nanoseconds" in notices[0]
    others = before.count("hello") + before.count("body") + bool(between) + bool(after)
    assert notices[1:] == (
        [
            f"{tmp_path / 'out.txt'}: {others} printed lines or objects that are no spans were"
            " skipped"
        ]
        * bool(others)
    )


def test_a_run_without_scopes_is_shown_and_not_scored(tmp_path: Path) -> None:
    """For many instrumentations the scope decides what a span means, so any score could be
    wrong.
    """
    (tmp_path / "spans.txt").write_text(record()[0], encoding="utf-8")
    (tmp_path / "spans.pb").write_bytes(record()[1])
    (shown,) = stored_traces.understand([tmp_path / "spans.txt"], load(None), listener=NO_PROBLEMS)
    assert [call.name for call in shown.calls] == ["search"]
    assert "no scopes" in shown.incomplete
    (skipped,) = stored_traces.replay([tmp_path / "spans.txt"], load(None), listener=NO_PROBLEMS)
    assert {getattr(result.outcome, "reason", None) for result in skipped.results} == {"incomplete"}
    (scored,) = stored_traces.replay([tmp_path / "spans.pb"], load(None), listener=NO_PROBLEMS)
    assert {type(result.outcome) for result in scored.results} == {Scored}


def test_a_cut_span_is_a_problem_with_its_line(tmp_path: Path) -> None:
    """The other span is read."""
    printed = record()[0]
    (tmp_path / "cut.txt").write_text(printed[: -len(printed) // 8], encoding="utf-8")
    problems: list[str] = []
    read = [
        fact
        for framed in read_file(tmp_path / "cut.txt", problems.append)
        for fact in facts(framed)
    ]
    line = printed.split("}\n{\n")[0].count("\n") + 2
    assert len(read) == 1
    assert problems == [f"{tmp_path / 'cut.txt'}: line {line}: a span that was cut or is not JSON"]


def test_a_time_that_is_none_is_a_problem(tmp_path: Path) -> None:
    """Nothing else of the file is usable, so it is refused."""
    (tmp_path / "bad.txt").write_text(
        '{"name": "x", "context": {"trace_id": "0x1"}, "start_time": 3}\n', encoding="utf-8"
    )
    with pytest.raises(
        InputError, match="line 1: start and end: expected nanoseconds, or a date and time"
    ):
        list(read_file(tmp_path / "bad.txt"))


def test_deeply_nested_attributes_are_cut_and_end_no_replay(tmp_path: Path) -> None:
    """JSON's parser accepts lists and objects that are deeper than OTLP's are read."""
    for begin, end in (('{"a": ', "}"), ("[", "]")):
        attributes = f'{{"k": {begin * 900}1{end * 900}}}'
        (tmp_path / "deep.txt").write_text(
            f'{{"name": "x", "context": {{"trace_id": "0x{"1" * 32}", "span_id": "0x{"2" * 16}"}},'
            f' "attributes": {attributes}}}\n',
            encoding="utf-8",
        )
        row = {"trace_id": "1" * 32, "span_id": "2" * 16, "name": "x", "attributes": attributes}
        for batch in (*read_file(tmp_path / "deep.txt"), read_rows([row])):
            ((_, _, (_, payload, scope), _),) = batch.spans
            assert "…" in str(scope.reader(payload).attributes(ALL)["k"])
