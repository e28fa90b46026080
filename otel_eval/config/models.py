"""The configuration of a file as objects, and its parts about evaluations, scorers, judges and
conventions.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
    WrapValidator,
    model_validator,
)

from otel_eval.config.exporters import Delivery, Exporters, Results, Signals, Telemetry, Window
from otel_eval.config.receivers import Receivers, Storage, Traces
from otel_eval.config.ui import Ui
from otel_eval.config.units import Plain, Seconds, TlsFiles, Variable, tls_without_https, url_of
from otel_eval.conventions import Convention
from otel_eval.errors import ConfigError, holds_credentials, redacted, redacted_repr
from otel_eval.interfaces import Scorer
from otel_eval.scorers import create_scorer
from otel_eval.scorers.build import SpecificationSchema, checked_scorer
from otel_eval.scorers.judge import any_judge_name, judge_function, named_judges
from otel_eval.validation import (
    LIST,
    MAPPING,
    Count,
    Part,
    Shape,
    Share,
    Some,
    Whole,
    duplicates,
    form_of,
    part,
)


class Match(Shape):
    """Which runs an evaluation is for; all that is given must hold. `*` and `?` stand for any text
    and any character.
    """

    service: str = "*"
    """The service that ran the agent."""
    agent: str = "*"
    """The agent's name."""
    span: str = "*"
    """The name of the run's own span."""
    runs: Literal["outermost", "all", "tools"] = "outermost"
    """Outermost agent runs, runs within runs too, or the tool calls of no agent run."""
    attributes: Mapping[str, Plain] = Field(default_factory=dict)
    """Attributes of the run's span, its resource or scope: a value, or a text with `*` and `?`."""


def scorer_of(spec: Any) -> Scorer:
    """The scorer of a mapping `{type, name, ...}`; a scorer is returned as it is.

    Raises:
        ConfigError: it cannot be built.
    """
    return (
        checked_scorer(spec)
        if isinstance(spec, Scorer) and not isinstance(spec, type)
        else create_scorer(spec)
    )


def _check_buildable(spec: object) -> object:
    scorer_of(spec)
    return spec


ScorerSpec = Annotated[Any, AfterValidator(_check_buildable), SpecificationSchema()]


class Evaluation(Shape):
    """A set of scorers and the runs they are for."""

    name: str = Field(default="default", min_length=1)
    """The name of the evaluation in results; unique."""
    match: Part[Match] = part(Match)
    """Which runs; every outermost run when left out."""
    sample: Share = 1.0
    """The share of traces that is evaluated, chosen by trace id: every process and revision chooses
    the same.
    """
    scorers: Some[ScorerSpec]
    """Mappings with a `type`, an optional `name` and the parameters of the type."""

    def contradictions(self) -> Iterable[str]:
        """Scorers with the same name."""
        return duplicates(
            "scorers", [scorer.name for scorer in self.build()], "give one of them another name"
        )

    # The last validator wraps the others.
    @model_validator(mode="wrap")
    @classmethod
    def _with_any_judge_name(cls, value: Any, handler: Any) -> Any:
        with any_judge_name():  # names of judges are resolved in the whole configuration
            return handler(value)

    def build(self) -> tuple[Scorer, ...]:
        """The scorers, ready to be called, in the order given."""
        return tuple(scorer_of(spec) for spec in self.scorers)


def _default_evaluation() -> Evaluation:
    # These scorers need neither a reference nor a key, so they apply to any agent.
    return Evaluation(
        name="default", scorers=({"type": "tool_errors"}, {"type": "time_cost", "max_ms": 30000})
    )


def _read_tables(values: tuple[Any, ...]) -> tuple[Convention, ...]:
    if not values:
        return ()
    from otel_eval.config.conventions import conventions_from_list  # few have tables of their own

    return conventions_from_list(values)


_Tables = Annotated[
    tuple[Any, ...],
    AfterValidator(_read_tables),
    WithJsonSchema({"type": "array", "items": {"type": "object"}}),
]


class Conventions(Shape):
    """Convention tables of your own, and properties of instrumentations."""

    tables: _Tables = ()
    """Convention tables of your own; they are tried before the built-in ones."""
    records_tool_spans: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Globs of instrumentation scopes that record each tool call as a span: a run without tool
    spans made no call there.
    """


ConventionsSpec = Annotated[
    Annotated[_Tables, Tag(LIST)] | Annotated[Part[Conventions], Tag(MAPPING)],
    Discriminator(form_of),
]
"""A list of tables, or a mapping with `tables` and `records_tool_spans`."""


_RESERVED: Final = frozenset({"model", "messages", "stream", "n", "response_format"})


def _check_url(text: str) -> str:
    if holds_credentials(text):  # not quoted
        raise ValueError(
            "the URL holds a user, a password or a query; leave them out and write api_key_env:"
            " JUDGE_API_KEY"
        )
    if url_of(text) is None:
        raise ValueError(
            f"{redacted_repr(redacted(text))} is not a URL with a host; write e.g."
            " https://models.example/v1"
        )
    return text


def _check_parameters(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    reserved = sorted(_RESERVED & parameters.keys())
    if reserved:
        raise ValueError(f"{reserved[0]}: is set by otel-eval; leave it out")
    unsendable = next((key for key, value in parameters.items() if not _is_json(value)), None)
    if unsendable is not None:
        raise ValueError(
            f"{unsendable}: is not JSON; write numbers, texts, true or false, lists or mappings of"
            " these"
        )
    return parameters


def _is_json(value: object) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        return False
    return True


class JudgeEndpoint(Shape):
    """An OpenAI-compatible chat endpoint that serves as a judge."""

    base_url: Annotated[str, AfterValidator(_check_url)]
    """http:// or https:// URL that `/chat/completions` is added to."""
    model: str = Field(min_length=1)
    """The model's name there. None is assumed."""
    api_key_env: Variable | None = None
    """The environment variable that holds the key."""
    api_key_file: str | None = None
    """The file that holds the key. Neither: no key is sent."""
    tls: TlsFiles | None = None
    """Files for an https:// URL; the system's authorities when left out."""
    timeout: Seconds = Field(default=60.0, gt=0)
    """How long one attempt may take."""
    retries: Whole = 2
    """Attempts after the first one if the judge is rate limited, unavailable or does not answer."""
    per_minute: Count | None = None
    """Attempts in any minute; further ones wait. Left out: any number."""
    cache: Whole = 1000
    """Responses in the cache; equal requests are sent once. 0: no cache."""
    parameters: Annotated[Mapping[str, Any], AfterValidator(_check_parameters)] = Field(
        default_factory=dict
    )
    """Further fields of each request, e.g. `{temperature: 0}`."""

    def contradictions(self) -> Iterator[str]:
        """TLS files without https://, two keys, or a missing package."""
        yield from tls_without_https(self.tls, self.base_url)
        if self.api_key_env is not None and self.api_key_file is not None:
            yield "api_key_file: is given beside api_key_env; name one of them"
        if find_spec("openai") is None:
            yield (
                "an endpoint needs the package openai; install it with pip install"
                " 'otel-eval[judge]'"
            )


def _read_judge(value: Any, endpoint: Any) -> object:
    """Return a coroutine function, given itself or by its path; validate anything else as an
    endpoint.
    """
    is_path = isinstance(value, str) and ":" in value and "://" not in value
    if isinstance(value, str) and not is_path:  # not quoted: it may be the key itself
        raise ValueError(
            "a text is no endpoint; write base_url, model and api_key_env, or the path"
            " package.module:function"
        )
    return judge_function(value) if is_path or callable(value) else endpoint(value)


JudgeSpec = Annotated[Part[JudgeEndpoint], WrapValidator(_read_judge)]


class AsyncScoring(Shape):
    """Limits for scorers that are awaited, such as judges, and for functions of your own."""

    max_queue: Count = 1000
    """Results that may be pending at one time; more fail with `judge_queue_full`."""
    concurrency: Count = 8
    """How many scorers run at one time."""
    timeout: Seconds = Field(default=300.0, gt=0)
    """How long one result may take, with all attempts; then it fails with `timeout`."""
    scorer_timeout: Seconds = Field(default=30.0, gt=0)
    """How long a scorer of your own that is not a coroutine may take for one run; then it fails
    with `timeout`.
    """


class EvalConfig(Shape):
    """The whole configuration, as one YAML file has it.

    Raises:
        ConfigError: one line for each invalid value, joined by `; `.
    """

    traces: Part[Traces] = part(Traces)
    """When a trace is evaluated, and how much may be held."""
    evaluations: Some[Evaluation] = Field(default_factory=lambda: (_default_evaluation(),))
    """What is evaluated. Left out: `tool_errors` and `time_cost` of every outermost run."""
    results: Part[Results] = part(Results)
    """What results carry besides their scores."""
    judges: Mapping[str, JudgeSpec] = Field(default_factory=dict)
    """Endpoints, or coroutine functions from Python, that scorers name as their `judge`."""
    async_scoring: Part[AsyncScoring] = part(AsyncScoring)
    """Limits for scorers that are awaited, such as judges, and for your own functions."""
    receivers: Part[Receivers] = part(Receivers)
    """Where `otel-eval serve` takes spans from."""
    exporters: Part[Exporters] = part(Exporters)
    """Where scores go. `otel-eval serve` writes to stdout when none is named."""
    delivery: Part[Delivery] = part(Delivery)
    """How long results wait for an endpoint that does not support their signal."""
    workers: Annotated[Count, Field(le=256)] = 1
    """Processes of `otel-eval serve` that evaluate. From 2 on one more receives and splits requests
    by trace id.
    """
    storage: Part[Storage] | None = None
    """The journal of `otel-eval serve`, so that nothing is lost in a crash. Left out: everything is
    in memory.
    """
    telemetry: Part[Telemetry] = part(Telemetry)
    """Health, metrics and logs of `otel-eval serve`."""
    ui: Part[Ui] = part(Ui)
    """The page of `otel-eval serve` that shows the last runs."""
    signals: Signals | None = None
    """In a process: which signals carry scores. Left out: whatever is configured there."""
    window: Part[Window] = part(Window)
    """The sliding window of metrics."""
    conventions: ConventionsSpec = ()
    """Convention tables of your own; or a mapping of `tables` and `records_tool_spans`."""

    @property
    def own_conventions(self) -> Conventions:
        """The conventions in the form of a mapping, however they were given."""
        conventions = self.conventions
        if isinstance(conventions, Conventions):
            return conventions
        return Conventions.model_construct(tables=conventions)

    def named_scorers(self) -> list[tuple[str, Scorer]]:
        """Every scorer with the name of its evaluation, for inspection only: their judges are
        placeholders.
        """
        with any_judge_name():
            return [
                (evaluation.name, scorer)
                for evaluation in self.evaluations
                for scorer in evaluation.build()
            ]

    def contradictions(self) -> Iterator[str]:
        """Unknown judges, and evaluations with the same name."""
        for index, evaluation in enumerate(self.evaluations):
            for scorer_index, spec in enumerate(evaluation.scorers):
                try:
                    # an evaluation that was given as an object may name unknown judges
                    scorer_of(spec)
                except ConfigError as error:
                    yield from (
                        f"evaluations[{index}].scorers[{scorer_index}].{problem}"
                        for problem in error.problems
                    )
        yield from duplicates(
            "evaluations",
            [evaluation.name for evaluation in self.evaluations],
            "rename one of them",
        )

    @model_validator(mode="wrap")
    @classmethod
    def _with_judge_names(cls, value: Any, handler: Any) -> Any:
        """Make the names of judges known while scorers are validated, which happens before this
        object exists.
        """
        if not isinstance(value, Mapping):
            return handler(value)
        judges = value.get("judges")
        with named_judges(
            dict.fromkeys(judges, _placeholder_judge) if isinstance(judges, Mapping) else {}
        ):
            return handler(value)


def with_ui(config: EvalConfig, endpoint: str) -> EvalConfig:
    """The configuration with the page at this address.

    Raises:
        ConfigError: no page can be served there.
    """
    return config.model_copy(update={"ui": Ui(**{**dict(config.ui), "endpoint": endpoint})})


async def _placeholder_judge(prompt: str) -> str:
    raise NotImplementedError  # never called: no judge is called while a configuration is validated
