"""The protocols and records between the layers: how a span is read, what a scorer is, how much work
one trace may take.

A span travels through assembly as a `Frame`, a plain tuple around a payload that only its source
can decode (raw protobuf bytes, an SDK span): a tuple of bytes takes a third of the memory of an
object, and nothing is decoded for a span that no table needs. When the trace closes, the frame's
`ResourceScope` turns the payload into a `SpanReader`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import field
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from otel_eval.model import Completeness, Evidence, Outcome, Trajectory
from otel_eval.records import record

LONG_TEXT: Final = 64
"""A length in bytes that exceeds all names by which instrumentations distinguish spans; the C
extension has the same number.
"""


@record
class Wanted:
    """Which attributes to decode: exact keys, and prefixes of flattened families such as
    `llm.output_messages.`.

    Attributes:
        keys: exact keys.
        prefixes: prefixes of keys.
        presence: keys of which only matters whether they have a value: a fingerprint omits their
            texts.
        short: whether a fingerprint omits texts of more than `LONG_TEXT` bytes, so that it does not
            depend on them.
        named: whether a fingerprint includes the span's name.
    """

    keys: frozenset[str]
    prefixes: tuple[str, ...] = ()
    presence: frozenset[str] = frozenset()
    short: bool = False
    named: bool = False
    # The keys and prefixes as UTF-8, for sources that compare raw bytes.
    raw_keys: frozenset[bytes] = field(init=False, repr=False, compare=False, default=frozenset())
    raw_prefixes: tuple[bytes, ...] = field(init=False, repr=False, compare=False, default=())
    raw_presence: frozenset[bytes] = field(
        init=False, repr=False, compare=False, default=frozenset()
    )

    def __post_init__(self) -> None:
        # Encoded once, when the tables are made: sources compare them with the raw keys of every
        # attribute.
        object.__setattr__(self, "raw_keys", frozenset(key.encode() for key in self.keys))
        object.__setattr__(self, "raw_prefixes", tuple(prefix.encode() for prefix in self.prefixes))
        object.__setattr__(self, "raw_presence", frozenset(key.encode() for key in self.presence))


@record
class SpanEvent:
    """An event of a span, or a log record that belongs to it (then `body` may be set)."""

    name: str
    attributes: Mapping[str, Any]
    body: Any = None


class SpanReader(Protocol):
    """Reads one span. Values are plain JSON-like Python values (bytes become base64 text, tuples
    lists).
    """

    @property
    def name(self) -> str: ...
    @property
    def span_kind(self) -> int:
        """The number in OTLP: 0 unspecified, 1 internal, 2 server, 3 client, 4 producer, 5
        consumer.
        """
        ...

    @property
    def parent_is_remote(self) -> bool | None:
        """Whether the parent is in another process, by the span's flags; None if the flags do not
        record it.
        """
        ...

    @property
    def start_ns(self) -> int: ...
    @property
    def end_ns(self) -> int: ...
    @property
    def status_code(self) -> int:
        """0 unset, 1 ok, 2 error."""
        ...

    @property
    def status_message(self) -> str: ...

    @property
    def dropped_attributes(self) -> int:
        """How many attributes the sender left out because of a limit; 0 if it does not say."""
        ...

    def attributes(self, wanted: Wanted) -> dict[str, Any]:
        """The wanted attributes that the span has."""
        ...

    def fingerprint(self, wanted: Wanted) -> Hashable | None:
        """A key that is equal only where the wanted attributes (without `prefixes`), apart from
        texts that do not matter, and their order are equal; None if it cannot be made without
        decoding.
        """
        ...

    def events(self) -> Iterable[SpanEvent]:
        """The span's events in order; each may be decoded only when it is reached."""
        ...


class Deployment(NamedTuple):
    """The version of a service and the environment it runs in; each "" if its resource does not
    have it.

    Source: `service.version` and `deployment.environment.name` (until 1.27
    `deployment.environment`) of the OpenTelemetry semantic conventions for resources.
    """

    version: str = ""
    environment: str = ""

    @classmethod
    def of(cls, resource: Mapping[str, Any]) -> Deployment:
        """Read version and environment from the attributes of a resource."""
        found = [_text(resource.get(key)) for key in _DEPLOYMENT]
        return cls(found[0], found[1] or found[2])


# In the order in which `Deployment.of` reads them; the last is the older name of the one before.
_DEPLOYMENT: Final = ("service.version", "deployment.environment.name", "deployment.environment")
DEPLOYMENT: Final = Wanted(frozenset(_DEPLOYMENT))
"""The attributes of a resource that `Deployment.of` reads."""


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


class RunSource(NamedTuple):
    """Where runs come from; each field is "" if it is not known.

    Attributes:
        service: the name of the service.
        agent: the name of the agent.
        deployment: version and environment of the service.
    """

    service: str = ""
    agent: str = ""
    deployment: Deployment = Deployment()


class ResourceScope(Protocol):
    """What the spans of one resource and instrumentation scope share, and how to read them."""

    @property
    def service(self) -> str:
        """`service.name` of the resource, or ""."""
        ...

    @property
    def deployment(self) -> Deployment:
        """The service's version and environment in the resource."""
        ...

    @property
    def resource(self) -> Mapping[str, Any]:
        """The attributes of the resource that are exported with results
        (`conventions.resources`).
        """
        ...

    @property
    def scope_name(self) -> str: ...

    def shared(self, wanted: Wanted) -> dict[str, Any]:
        """The wanted attributes of the resource, then of the scope where the resource has none."""
        ...

    def reader(self, payload: Any) -> SpanReader: ...

    def rank(self, payload: Any) -> tuple[Any, ...]:
        """(end, number of attributes, bytes): of two spans with the same id the one with the
        greater rank counts. The end is the first item.
        """
        ...

    def size(self, payload: Any) -> int:
        """The bytes of all text that the span recorded, or more."""
        ...

    def slim(self, payload: Any, wanted: Wanted) -> Any:
        """The span without events, links and attributes other than the wanted ones, to take less
        memory; the same object if that would take as much.
        """
        ...


class Role(Enum):
    """What a span is for assembly."""

    AGENT = "an agent span"
    STEP = "a model or tool span"
    SERVED = "a tool span that serves a caller in another process: a step of that caller's run"
    OTHER = "a span that a convention recognises, and no step"
    PLAIN = "a span that no convention recognises"


Frame = tuple[bytes, Any, ResourceScope]
"""A span in assembly: its parent's id (b"" if it has none), its payload, and its resource and
scope. The span's id is the key.
"""


SpanFrame = tuple[bytes, bytes, Frame, int]
"""A span for assembly: trace id, span id, frame, and its approximate size in bytes."""


class LogReader(Protocol):
    """How to read the log records of one resource and scope."""

    def event(self, payload: Any) -> SpanEvent: ...


LogFrame = tuple[Any, LogReader]


JoinedLog = tuple[bytes, bytes, LogFrame, int]
"""A log record for assembly: trace id and id of its span, frame, and its approximate size in
bytes.
"""


class LastEvaluation(NamedTuple):
    """The last evaluation of a run.

    Attributes:
        revision: the revision that was reported.
        incomplete: why it could not be scored, "" if it could.
        outermost: whether the run was not inside another run.
    """

    revision: int
    incomplete: str
    outermost: bool = True


NO_RUN: Final = b""
"""The key, instead of a run's span id, of the last evaluation of a trace without a reported
result.
"""


LATE: Final = "late"
"""`LastEvaluation.incomplete` of `NO_RUN` after a report that spans came too late."""


class SpanRoles(Protocol):
    """What assembly asks of the engine about a span."""

    def role_of(self, frame: Frame) -> Role:
        """Return what the span is for assembly."""

    def slim(self, frame: Frame) -> Frame:
        """Return the span without what matters only if it is part of a run."""


class NoRoles:
    """The `SpanRoles` of spans of which nothing is known."""

    def role_of(self, frame: Frame) -> Role:
        """Every span is an unknown one."""
        return Role.OTHER

    def slim(self, frame: Frame) -> Frame:
        """Every span is returned as it is."""
        return frame


class EvaluationHistory:
    """The last evaluation of each run of one trace, and under `NO_RUN` that of the trace itself.

    Every `ClosedTrace` of a trace has the same history: what is recorded after one evaluation is
    read by the next one.
    """

    __slots__ = ("_last",)

    def __init__(self, evaluations: Mapping[bytes, LastEvaluation] | None = None) -> None:
        self._last: Final = dict(evaluations or {})

    @property
    def evaluations(self) -> Mapping[bytes, LastEvaluation]:
        """All last evaluations, by the span id of the run; for reading."""
        return MappingProxyType(self._last)

    def last(self, run: bytes) -> LastEvaluation | None:
        """Return the last evaluation of the run with this span id; None if there was none."""
        return self._last.get(run)

    @property
    def runs(self) -> list[bytes]:
        """The span ids of the runs that were evaluated."""
        return [run for run in self._last if run]

    def record(self, evaluations: Mapping[bytes, LastEvaluation]) -> None:
        """Record evaluations of runs, which take the place of earlier ones."""
        self._last.update(evaluations)

    def forget(self, span_ids: Iterable[bytes]) -> list[bytes]:
        """Forget the evaluations of the runs among these spans; return the runs' ids."""
        runs = [span_id for span_id in span_ids if span_id in self._last]
        for run in runs:
            del self._last[run]
        return runs

    def copy(self) -> EvaluationHistory:
        """Return a history of its own with the same evaluations."""
        return EvaluationHistory(self._last)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EvaluationHistory) and self._last == other._last


MOST_CRASHES: Final = 2
"""After this many crashes of the process during the evaluation of a trace, the evaluation fails
without another attempt.
"""


class Crashes(NamedTuple):
    """How often the process crashed while something was being evaluated.

    Attributes:
        times: the number of crashes.
        scoring: whether the trajectories had been built at the last crash, so that a scorer was
            running.
    """

    times: int = 0
    scoring: bool = False


class Part(NamedTuple):
    """The part of a trace that is evaluated while the rest of it is open: ids of the roots of its
    trees, and of its spans.
    """

    roots: tuple[bytes, ...]
    spans: frozenset[bytes]


class Released(NamedTuple):
    """What is known of the spans of a trace that are not among its frames.

    Attributes:
        parents: ids of the missing parents of trees that were evaluated.
        lost: the ids of missing parents that had descendants which are no longer known.
        is_thinned: whether spans of runs are no longer known.
        has_agents: whether an agent span is among the spans of the trace.
    """

    parents: frozenset[bytes]
    lost: frozenset[bytes]
    is_thinned: bool = False
    has_agents: bool = False


@record
class ClosedTrace:
    """A trace that is to be evaluated now.

    Attributes:
        trace_id: 16 bytes.
        frames: span id (8 bytes) → frame; empty if only log records of the trace arrived.
        logs: span id → log records joined to it, in order of arrival.
        reason: why it was closed.
        cut: "" or the limit that dropped spans of this trace.
        changed: None the first time; later the ids of spans that are new or replaced since the last
            closing.
        history: the last evaluations of its runs; the buffer holds it while the trace is kept.
        part: the runs to evaluate, or None for all; other frames only show whether spans of these
            runs are missing.
        released: what was evaluated before and is not in `frames`, or None.
        evidence: evidence of all spans of the trace that were ever known, if some of them are not
            in `frames`.
        is_late: its spans came after their run was forgotten: they are not evaluated.
        bytes_at_most: the bytes of all frames and log records as they were measured when they
            arrived, or more; None if that is not known.
    """

    trace_id: bytes
    frames: Mapping[bytes, Frame]
    reason: Completeness
    logs: Mapping[bytes, tuple[LogFrame, ...]] = field(default_factory=dict)
    cut: str = ""
    changed: frozenset[bytes] | None = None
    history: EvaluationHistory = field(default_factory=EvaluationHistory)
    part: Part | None = None
    released: Released | None = None
    evidence: Evidence | None = None
    is_late: bool = False
    bytes_at_most: int | None = None


@runtime_checkable
class Scorer(Protocol):
    """Scores one trajectory. Equal trajectories give equal outcomes.

    `needs` names what the scorer reads beyond names, times and errors of the calls:
    any of "arguments", "results", "content" (the run's input and output), "spans", "tokens" (their
    sums).

    A scorer that awaits an external response also has a true `asynchronous` and `async
    evaluate(trajectory)`: it runs beside the others, and its result follows later. Such a scorer
    may have a `sample`, the share of traces that it scores.
    """

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def needs(self) -> frozenset[str]: ...

    def __call__(self, trajectory: Trajectory) -> Outcome: ...


def all_but(marks: bytes) -> bytes:
    """The bytes to delete from a text so that only `marks` remain: faster than counting each of
    them.
    """
    return bytes(set(range(256)).difference(marks))
