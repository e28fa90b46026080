"""The configuration as objects: evaluations, limits of assembly, storage and everything else that is one key of the file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, WithJsonSchema, model_validator

from otel_eval.config.endpoints import Exporters, Receivers, Signals, Telemetry
from otel_eval.config.judges import AsyncScoring, JudgeSpec
from otel_eval.config.units import Count, Plain, Seconds, Share, Size, Whole
from otel_eval.config.validation import LIST, MAPPING, Shape, twice
from otel_eval.errors import ConfigError, redacted_repr
from otel_eval.interfaces import Scorer

__all__ = ["Conventions", "EvalConfig", "Evaluation", "Match", "Results", "Storage", "Traces", "Window", "scorer_of"]


MOST_WORKERS: Final = 256
_ANOTHER: Final = "give one of them another name"
_RENAME: Final = "rename one of them"


class Traces(Shape):
    """When a trace is evaluated, and how much may be held."""

    deprecated_keys: ClassVar[Mapping[str, str]] = {
        "settle": "decision_wait",
        "settle_partial": "decision_wait_partial",
        "settle_detached": "decision_wait_detached",
        "late": "grace_period",
    }
    decision_wait: Seconds = 1.0
    """Wait after the last span of a complete trace of one service before it is evaluated. 0: none."""
    decision_wait_partial: Seconds = 6.0
    """The same if a parent is missing or several services take part."""
    decision_wait_detached: Seconds = 60.0
    """How long after the last span of its subtree an agent's run is evaluated whose parent has not arrived."""
    grace_period: Seconds = 30.0
    """How long an evaluated trace is kept for late spans, which cause a new revision. 0: it is not kept."""
    idle_timeout: Seconds = 300.0
    """How long a trace whose root has not ended may have no new span before it is closed."""
    max_age: Seconds = 3600.0
    """How long a trace may be open at most."""
    max_traces: Count = 100_000
    """Traces held at one time."""
    max_spans_per_trace: Count = 10_000
    """Spans held of one trace."""
    max_bytes_per_trace: Size = 64 * 2**20
    """Bytes held of one trace."""
    max_bytes: Size = 512 * 2**20
    """Bytes held of all traces."""

    def contradictions(self) -> Iterator[str]:
        """Times and sizes that cannot be reached because of others."""
        times = ("decision_wait", "decision_wait_partial", "idle_timeout", "max_age")
        for lesser, greater in [*pairwise(times), ("max_bytes_per_trace", "max_bytes")]:
            if getattr(self, lesser) > getattr(self, greater):
                limit = f"{getattr(self, greater):g}"
                yield f"{lesser}: {getattr(self, lesser):g} is more than {greater} ({limit}); lower it or raise {greater}"
        partial, detached = self.decision_wait_partial, self.decision_wait_detached
        if "decision_wait_detached" in self.model_fields_set and not partial <= detached <= self.idle_timeout:
            yield (
                f"decision_wait_detached: {detached:g} is not between decision_wait_partial ({partial:g}) and "
                f"idle_timeout ({self.idle_timeout:g}); change it or one of them"
            )
        if self.max_age == 0:
            yield "max_age: 0 would close every trace at once; write e.g. 1h"


class Match(Shape):
    """Which runs an evaluation is for; all that is given must hold. `*` and `?` stand for any text and any character."""

    service: str = "*"
    """The service that ran the agent."""
    agent: str = "*"
    """The agent's name."""
    span: str = "*"
    """The name of the run's own span."""
    runs: Literal["outermost", "all"] = "outermost"
    """Whether runs within runs count too."""
    attributes: Mapping[str, Plain] = Field(default_factory=dict)
    """Attributes of the run's span, its resource or scope: a value, or a text with `*` and `?`."""


def scorer_of(spec: Any) -> Scorer:
    """The scorer of a mapping `{type, name, ...}`; a scorer is returned as it is.

    Raises:
        ConfigError: it cannot be built.
    """
    # Deferred: the registry loads every scorer and its plug-ins, which `schema` and `--version` have no need of.
    if isinstance(spec, Scorer) and not isinstance(spec, type):
        from otel_eval.scorers.spec.build import checked_scorer

        return checked_scorer(spec)
    from otel_eval.scorers import create_scorer

    return create_scorer(spec)


def _some(given: tuple[Any, ...]) -> tuple[Any, ...]:
    if not given:
        raise ValueError("the list is empty; name at least one")
    return given


def _usable(spec: Any) -> Any:
    scorer_of(spec)
    return spec


ScorerSpec = Annotated[
    Any,
    AfterValidator(_usable),
    WithJsonSchema(
        {"type": "object", "required": ["type"], "properties": {"type": {"type": "string"}, "name": {"type": "string"}}}
    ),
]


class Evaluation(Shape):
    """A set of scorers and the runs they are for."""

    name: str = Field(min_length=1)
    """The name of the evaluation in results; unique."""
    match: Match = Match()
    """Which runs; every outermost run when left out."""
    sample: Share = 1.0
    """The share of traces that is evaluated, chosen by trace id: every process and revision chooses the same."""
    scorers: Annotated[tuple[ScorerSpec, ...], AfterValidator(_some)]
    """Mappings with a `type`, an optional `name` and the parameters of the type."""

    def contradictions(self) -> Iterable[str]:
        """Scorers of one name."""
        return twice("scorers", [scorer.name for scorer in self.build()], _ANOTHER)

    @classmethod
    def seen_in(cls, given: Mapping[str, Any]) -> Iterable[str]:
        """Scorers of one name, whether they can be used or not."""
        return twice("scorers", [_name_of(spec) for spec in _listed(given.get("scorers"))], _ANOTHER)

    # The last of the validators is around the others.
    @model_validator(mode="wrap")
    @classmethod
    def _alone(cls, given: Any, handler: Any) -> Any:
        from otel_eval.scorers.judge import any_judge_name  # deferred, as the scorers are

        with any_judge_name():  # names of judges are resolved in the whole configuration
            return handler(given)

    def build(self) -> tuple[Scorer, ...]:
        """The scorers, ready to be called, in the order given."""
        return tuple(scorer_of(spec) for spec in self.scorers)


def _default() -> Evaluation:
    # These scorers need neither a reference nor a key, so they apply to any agent.
    return Evaluation(name="default", scorers=({"type": "tool_errors"}, {"type": "time_cost", "max_ms": 30000}))


def _convention(mapping: Any) -> Any:
    from otel_eval.conventions import Convention, convention_from_mapping

    if isinstance(mapping, Convention):
        return mapping
    if not isinstance(mapping, Mapping):
        raise ValueError(f"{redacted_repr(mapping)} is not a convention; write a mapping")
    convention_from_mapping(mapping)
    return mapping


ConventionSpec = Annotated[Any, AfterValidator(_convention), WithJsonSchema({"type": "object"})]


class Results(Shape):
    """What results carry besides their scores."""

    attributes: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Attributes of the run's span, its resource or scope that every result carries, such as the id of a test case."""
    no_run: bool = True
    """Whether JSON Lines have a line for each trace without a result, so that `merge` sees traces that were split."""


class Storage(Shape):
    """The journal of `otel-eval serve`: acknowledged requests until they are scored and delivered."""

    directory: str = Field(min_length=1)
    """A directory for this process alone; made if it is not there."""
    max_size: Size = 10 * 2**30
    """Bytes on disk. Beyond it clients get a retryable error."""
    sync: bool = True
    """Whether a request is acknowledged after fsync. If not, it survives a crash of the process but not of the machine."""


class Window(Shape):
    """The sliding window of the metrics `otel_eval.window.*`, for each evaluation and scorer. 0 for either: no such metrics."""

    time: Seconds = 3600.0
    """The age up to which results count."""
    results: Whole = 10_000
    """How many results are kept, the newest ones; each takes about 400 bytes."""


def _scope(pattern: str) -> str:
    if not pattern:
        raise ValueError("'' names no instrumentation scope; write its name, or * for every scope")
    return pattern


class Conventions(Shape):
    """Convention tables of your own, and properties of instrumentations."""

    tables: tuple[ConventionSpec, ...] = ()
    """Convention tables of your own; they are tried before the built-in ones."""
    records_tool_spans: tuple[Annotated[str, AfterValidator(_scope)], ...] = ()
    """Globs of instrumentation scopes that record each tool call as a span: a run without tool spans made no call there."""


def _form(given: Any) -> str:
    return MAPPING if isinstance(given, Mapping | Conventions) else LIST


ConventionsSpec = Annotated[
    Annotated[tuple[ConventionSpec, ...], Tag(LIST)] | Annotated[Conventions, Tag(MAPPING)], Discriminator(_form)
]
"""A list of tables, or a mapping with `tables` and `records_tool_spans`."""


class EvalConfig(Shape):
    """The whole configuration, as one YAML file has it.

    Raises:
        ConfigError: one line for each invalid value, joined by `; `.
    """

    deprecated_keys: ClassVar[Mapping[str, str]] = {"judging": "async_scoring"}
    traces: Traces = Traces()
    """When a trace is evaluated, and how much may be held."""
    evaluations: Annotated[tuple[Evaluation, ...], AfterValidator(_some)] = Field(default_factory=lambda: (_default(),))
    """What is evaluated. Left out: `tool_errors` and `time_cost` of every outermost run."""
    results: Results = Results()
    """What results carry besides their scores."""
    judges: Mapping[str, JudgeSpec] = Field(default_factory=dict)
    """Endpoints, or coroutine functions from Python, that scorers name as their `judge`."""
    async_scoring: AsyncScoring = AsyncScoring()
    """Limits for scorers that are awaited, such as judges, and for your own functions."""
    receivers: Receivers = Receivers()
    """Where `otel-eval serve` takes spans from."""
    exporters: Exporters = Exporters()
    """Where scores go. `otel-eval serve` writes to stdout when none is named."""
    workers: Count = 1
    """Processes of `otel-eval serve` that evaluate. From 2 on one more receives and splits requests by trace id."""
    storage: Storage | None = None
    """The journal of `otel-eval serve`, so that nothing is lost in a crash. Left out: everything is in memory."""
    telemetry: Telemetry = Telemetry()
    """Health, metrics and logs of `otel-eval serve`."""
    signals: Signals | None = None
    """In a process: which signals carry scores. Left out: whatever is configured there."""
    window: Window = Window()
    """The sliding window of metrics."""
    conventions: ConventionsSpec = ()
    """Convention tables of your own; or a mapping of `tables` and `records_tool_spans`."""

    @property
    def own_conventions(self) -> Conventions:
        """The conventions in the form of a mapping, however they were given."""
        given = self.conventions
        return given if isinstance(given, Conventions) else Conventions(tables=given)

    def contradictions(self) -> Iterable[str]:
        """Evaluations of one name, and more workers than any machine has use for."""
        many = [f"workers: {self.workers} is more than {MOST_WORKERS}; set it to the number of cores or less"]
        return [
            *twice("evaluations", [each.name for each in self.evaluations], _RENAME),
            *(many if self.workers > MOST_WORKERS else ()),
        ]

    @classmethod
    def seen_in(cls, given: Mapping[str, Any]) -> Iterable[str]:
        """Evaluations of one name, whether they can be used or not, and those made before whose judges are not there."""
        made = _listed(given.get("evaluations"))
        return [*_unknown_judges(made), *twice("evaluations", [_name_of(each) for each in made], _RENAME)]

    @model_validator(mode="wrap")
    @classmethod
    def _judged_by_name(cls, given: Any, handler: Any) -> Any:
        """Names of judges mean something where scorers are built, which is before this object is there."""
        if not isinstance(given, Mapping):
            return handler(given)
        from otel_eval.scorers.judge import named_judges  # deferred, as the scorers are

        judges = given.get("judges")
        with named_judges(dict.fromkeys(judges, _not_yet) if isinstance(judges, Mapping) else {}):
            return handler(given)


async def _not_yet(prompt: str) -> str:
    raise NotImplementedError  # never called: no judge is called while a configuration is validated


def _unknown_judges(evaluations: Iterable[Any]) -> Iterator[str]:
    """Scorers of `Evaluation` objects that name a judge which the configuration does not have."""
    for place, each in enumerate(evaluations):
        for number, spec in enumerate(each.scorers if isinstance(each, Evaluation) else ()):
            try:
                scorer_of(spec)
            except ConfigError as error:
                yield from (f"evaluations[{place}].scorers[{number}].{problem}" for problem in error.problems)


def _listed(given: Any) -> Sequence[Any]:
    return given if isinstance(given, list | tuple) else ()


def _name_of(given: Any) -> Any:
    """How an evaluation or a scorer is called, as far as that can be seen."""
    if not isinstance(given, Mapping):
        return getattr(given, "name", None)
    from otel_eval.scorers.spec.registry import ALIASES  # deferred, as the scorers are

    kind = given.get("type")
    return given.get("name") or (ALIASES.get(kind, kind) if isinstance(kind, str) else None)
