"""Build a scorer from its specification, and describe specifications as JSON Schema for editors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import field, is_dataclass
from functools import partial
from typing import Annotated, Any, Final

from pydantic import GetJsonSchemaHandler, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import to_jsonable_python
from pydantic_core.core_schema import CoreSchema, DataclassSchema

from otel_eval.errors import ConfigError, collect_errors, redacted_repr
from otel_eval.interfaces import Scorer
from otel_eval.model import Failed, Outcome, Scored, Skipped, Trajectory
from otel_eval.records import frozen_record
from otel_eval.scorers.base_scorer import BaseScorer, Finding, Requirements, parameters_of
from otel_eval.scorers.judge import AskingScorer
from otel_eval.scorers.outcomes import checked_outcome, failed_from, in_range, wrong_return
from otel_eval.scorers.policy import note_policy
from otel_eval.scorers.registry import (
    ALIASES,
    BUILT_IN,
    Registration,
    check_parameters,
    checked_needs,
    get_scorer,
    instance_of,
    resolve_type,
)
from otel_eval.scorers.user_code import is_coroutine_function, run_coroutine
from otel_eval.validation import Record, core_schema_of, validated

_EXAMPLE: Final = (
    "write a mapping, e.g. {type: tool_errors}; register a function or class by"
    " @scorer('my_metric') first"
)

# Keys of judgeval, deepeval, UiPath and orbiter, and what to write here; docs/how-to/migration.md
# maps whole scorers.
_KEYS_ELSEWHERE: Final = {
    "should_exact_match": "write match: exact",
    "should_consider_ordering": "write match: in_order, or match: any_order for false",
    "evaluation_params": (
        "write compare: [arguments] or compare: [arguments, result] in a tool_correctness"
    ),
    "tool_calls_count": 'write criteria: {search: [">=", 1]} in a tool_call_count',
    "expected_output": (
        "write expected: [{name: search, result: ...}] in a tool_call_output for results of calls,"
        " or answer in an answer_accuracy for the run's answer"
    ),
    "model": "name the model under judges, and write judge: with its name there",
}


def create_scorer(spec: Mapping[str, Any]) -> Scorer:
    """Build a scorer from its specification: a mapping of `type`, parameters common to all scorers,
    and parameters of the type.

    Raises:
        ConfigError: the specification is invalid; one line names the key, the value, what would be
            right and the remedy.

    >>> from otel_eval.testing import call, trajectory
    >>> count = create_scorer({"type": "tool_call_count", "criteria": {"search": "<= 3"}})
    >>> count(trajectory(call("search"), call("open"))).value
    1.0
    """
    if not isinstance(spec, Mapping):
        raise ConfigError(f"{redacted_repr(spec)} is not a scorer's specification; {_EXAMPLE}")
    kind = spec.get("type")
    if not isinstance(kind, str):
        problem = (
            f"{redacted_repr(kind)} is not the name of a scorer" if "type" in spec else "missing"
        )
        raise ConfigError(f"type: {problem}; {_EXAMPLE}")
    parameters = {key: value for key, value in spec.items() if key != "type"}
    name, registered = resolve_type(kind)
    thing = registered.thing
    if inspect.isclass(thing) and issubclass(thing, BaseScorer):
        built: Scorer = validated(_adapter_of(thing), parameters)
        return built
    return _custom_scorer(name, registered, parameters)


def checked_scorer(scorer: Scorer) -> Scorer:
    """Check name, type, version and needs of a scorer that was given as an object, and return it.

    Raises:
        ConfigError: its name, type or version is not a text, or one of its needs does not exist.
    """
    texts = {key: getattr(scorer, key) for key in ("name", "type", "version")}
    problems = [
        f"{redacted_repr(value)} is not the {key} of a scorer; give the object a text as {key}"
        for key, value in texts.items()
        if not isinstance(value, str) or not value
    ]
    try:
        checked_needs(redacted_repr(texts["name"]), scorer.needs)
    except (TypeError, ValueError) as error:
        problems.append(f"needs: {error}")
    if problems:
        raise ConfigError(*problems)
    return scorer


_adapters: Final[dict[type, TypeAdapter[Any]]] = {}


def _adapter_of(scorer: type) -> TypeAdapter[Any]:
    """Builds scorers from their parameters; compiled when the first one is built."""
    if scorer not in _adapters:
        declared: Any = Annotated[scorer, Record(remedies=_KEYS_ELSEWHERE)]
        _adapters[scorer] = TypeAdapter(declared)
    return _adapters[scorer]


def _custom_scorer(name: str, registered: Registration, parameters: Mapping[str, Any]) -> Scorer:
    """Build a scorer from a registered or imported function, or from a class.

    Parameters that all scorers have are the scorer's own. The others are passed to the function
    with each run, or once to the class, whose instance is then called with each run. An instance
    that is itself a `Scorer` is returned as it is if no common parameter is written.

    Raises:
        ConfigError: a parameter is invalid, or no run could be passed to the function or instance.
    """
    thing, version = registered.thing, registered.version
    common_keys = parameters_of(BaseScorer)
    common = {key: value for key, value in parameters.items() if key in common_keys}
    further = {key: value for key, value in parameters.items() if key not in common_keys}
    checked, _ = collect_errors(
        (
            partial(validated, _adapter_of(BaseScorer), common),
            partial(check_parameters, thing, further, besides=common_keys),
        )
    )
    arguments = further
    if inspect.isclass(thing):
        received = ", ".join(parameters) or "no parameters"
        thing, arguments = instance_of(thing, further, f"type: {name!r} refused {received}"), {}
        if isinstance(thing, Scorer) and not common:
            if further:
                note_policy(thing, further)
            return thing
        if isinstance(version_of_class := getattr(thing, "version", None), str):
            version = version_of_class
    _check_callable(name, thing, arguments)
    return FunctionScorer(
        **{key: getattr(checked, key) for key in common},
        type=name,
        version=version,
        needs=registered.needs,
        reads_calls=registered.reads_calls,
        function=thing,
        arguments=arguments,
        parameters=further,
        decides=common.get("threshold") is not None,
    )


def _check_callable(name: str, thing: object, arguments: Mapping[str, Any]) -> None:
    """Raise `ConfigError` if a call with a trajectory would fail for every run."""
    if not callable(thing):
        raise ConfigError(
            f"type: {name!r} makes a {type(thing).__name__}, which cannot be called; give it"
            " __call__(self, trajectory)"
        )
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):  # some callables have no signature
        return
    try:
        signature.bind(None, **arguments)
    except TypeError as error:
        raise ConfigError(
            f"type: {name!r} cannot be called with a trajectory ({error}); take one as the first"
            " parameter"
        ) from None


class SpecificationSchema:
    """Annotation of a specification: its JSON Schema, for editors.

    Each built-in type has a definition with its parameters; the `type` decides which one applies.
    Other types, which packages register or which a dotted path names, accept any parameters.
    """

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        types = {name: get_scorer(name) for name in sorted(BUILT_IN)}
        spellings = {
            name: [name, *(alias for alias, meant in ALIASES.items() if meant == name)]
            for name in types
        }
        cases = [
            {
                "if": {"properties": {"type": {"enum": spellings[name]}}},
                "then": handler(_adapter_of(thing).core_schema),
            }
            for name, thing in types.items()
        ]
        all_spellings = [word for words in spellings.values() for word in words]
        kind = {
            "description": "Which scorer.",
            "anyOf": [{"enum": all_spellings}, {"type": "string", "minLength": 1}],
        }
        return {
            "type": "object",
            "properties": {"type": kind},
            "required": ["type"],
            "allOf": cases,
        }


class ConfigurationSchema(GenerateJsonSchema):
    """Describes configurations with their specifications of scorers."""

    def dataclass_schema(self, schema: DataclassSchema) -> JsonSchemaValue:
        """The schema of the mapping that a dataclass is read from: no other keys, and for a scorer
        its type.
        """
        described = super().dataclass_schema(schema)
        described["additionalProperties"] = False
        if issubclass(schema["cls"], BaseScorer):
            described["description"] = (schema["cls"].__doc__ or "").partition("\n")[0]
            described["properties"] = {"type": {"type": "string"}, **described["properties"]}
            described["required"] = ["type", *described.get("required", ())]
        return described

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Whether a field has a title, which one of a type with a definition has not."""
        return super().field_title_should_be_set(core_schema_of(schema))

    def encode_default(self, dft: object) -> object:
        """The default as JSON; pydantic 2.7 cannot do that with an object of a dataclass."""
        return to_jsonable_python(dft) if is_dataclass(dft) else super().encode_default(dft)


@frozen_record
class FunctionScorer(AskingScorer):
    """A function as a scorer, with the parameters and reasons to skip that all scorers have.

    Attributes:
        type, version, needs, reads_calls: as registered.
        function: takes a trajectory and the `arguments` by keyword; may be a coroutine function.
        parameters: what the specification gave beside the common parameters; if the function is an
            object of a class, its constructor received them.
        decides: whether a threshold was given: then it also decides whether a `Scored` that the
            function returned has passed.
        asynchronous: whether it is a coroutine function.
    """

    type: str  # type: ignore[misc] # a class variable of the base is a field here
    version: str = "1"  # type: ignore[misc] # as above
    needs: frozenset[str] = frozenset()
    reads_calls: bool = True
    function: Callable[..., Any]
    arguments: Mapping[str, Any]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    decides: bool = False
    asynchronous: bool = field(init=False, repr=False, compare=False)

    def prepare(self) -> None:
        """Find out whether the function is a coroutine function, whose result is awaited."""
        self._set("asynchronous", is_coroutine_function(self.function))

    def parameters_given(self) -> Mapping[str, Any]:
        """The common parameters, those of the function, and whether a threshold decides."""
        decides = {"decides": True} if self.decides else {}
        return {**BaseScorer.parameters_given(self), **self.parameters, **decides}

    def requires(self) -> Requirements:
        """The needs that were declared when the function was registered."""
        return Requirements(needs=self.needs, calls=self.reads_calls)

    def find(self, trajectory: Trajectory) -> Finding | Outcome:
        """Call the function; a coroutine is run to completion."""
        try:
            returned = self.function(trajectory, **self.arguments)
            if inspect.iscoroutine(returned):
                returned = run_coroutine(returned)
        # a user's function may raise anything; that is an outcome
        except (Exception, SystemExit) as error:  # noqa: BLE001
            return failed_from(error)
        return self._convert(returned)

    async def opinion(self, trajectory: Trajectory) -> Finding | Outcome:
        """Call the function and await its result, for callers inside a running event loop."""
        try:
            returned = self.function(trajectory, **self.arguments)
            if inspect.isawaitable(returned):
                returned = await returned
        except (Exception, SystemExit) as error:  # noqa: BLE001 - as above
            return failed_from(error)
        return self._convert(returned)

    def _convert(self, returned: Any) -> Finding | Outcome:
        """Convert what the function returned (an outcome, a number or a bool) to a finding or an
        outcome.
        """
        if isinstance(returned, Scored | Skipped | Failed):
            outcome = checked_outcome(returned, self.type)
            if isinstance(outcome, Scored) and (self.strict or self.decides):
                return Finding(outcome.value, outcome.explanation, outcome.details)
            return outcome
        if in_range(returned):
            return Finding(float(returned), "")
        if isinstance(returned, int | float):
            return wrong_return(
                "ValueError", f"{self.type} returned {returned!r}, not a number in [0, 1]"
            )
        return wrong_return(
            "TypeError",
            f"{self.type} returned a {type(returned).__name__}, not an outcome, a number or a bool",
        )


def is_own_scorer(scorer: Scorer) -> bool:
    """Whether only code of this package runs in the scorer: false for a user's function, class or
    object, for a wrapper that limits one in time, and for a decision tree that contains one.
    """
    is_own = type(scorer).__module__.startswith("otel_eval.scorers.") and not isinstance(
        scorer, FunctionScorer
    )
    return is_own and all(map(is_own_scorer, getattr(scorer, "scorers", ())))
