"""Scorers that users write as functions: their annotations, coroutines, and protection of what other scorers read.

No thread is started: a coroutine is run to its end where no event loop runs in the calling thread; where one runs, await
`FunctionScorer.evaluate` instead. Of annotations only certain contradictions are refused: built-in types, literals, unions and
lists of these.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, replace
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from otel_eval.errors import redacted_repr
from otel_eval.interfaces import Scorer
from otel_eval.model import Failed, Outcome, Scored, Skipped, ToolCall, Trajectory
from otel_eval.scorers.outcomes import checked_outcome, failed_from, in_range
from otel_eval.scorers.spec.base_scorer import BaseScorer, Finding

__all__ = [
    "FunctionScorer",
    "is_coroutine_function",
    "is_own_scorer",
    "private_copy",
    "refused_return",
    "run_coroutine",
    "wrong_parameters",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionScorer(BaseScorer):
    """A function as a scorer, inside the frame that every scorer has.

    Attributes:
        kind, edition, reading, about_calls: its type, version, needs, and whether it reads calls.
        function: takes a trajectory and the `arguments` by keyword; may be a coroutine function.
        decides: the threshold was given, so that it also decides over a `Scored` that the function made itself.
    """

    kind: str
    edition: str = "1"
    reading: frozenset[str] = frozenset()
    about_calls: bool = True
    function: Callable[..., Any]
    arguments: Mapping[str, Any]
    decides: bool = False

    @property
    def type(self) -> str:  # type: ignore[override] # what is fixed for a class is a field of this one
        """The name it was registered under."""
        return self.kind

    @property
    def version(self) -> str:  # type: ignore[override] # as above
        """As registered."""
        return self.edition

    @property
    def needs(self) -> frozenset[str]:
        """As registered."""
        return self.reading

    @property
    def asynchronous(self) -> bool:
        """Whether it is a coroutine function: such a one may take its time."""
        return is_coroutine_function(self.function)

    @property
    def reads_calls(self) -> bool:
        """As registered."""
        return self.about_calls

    def find(self, trajectory: Trajectory) -> Finding | Outcome:
        """Call the function; a coroutine is run to its end."""
        try:
            returned = self.function(trajectory, **self.arguments)
            if inspect.iscoroutine(returned):
                returned = run_coroutine(returned)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's function may raise anything; that is an outcome
            return failed_from(error)
        return self._understood(returned)

    async def evaluate(self, trajectory: Trajectory) -> Outcome:
        """The outcome, for callers inside a running event loop."""
        skipped = self.skip_common(trajectory)
        if skipped is not None:
            return skipped
        try:
            returned = self.function(self.select_calls(trajectory), **self.arguments)
            if inspect.isawaitable(returned):
                returned = await returned
        except (Exception, SystemExit) as error:  # noqa: BLE001 - as above
            return failed_from(error)
        return self.to_outcome(self._understood(returned))

    def _understood(self, returned: Any) -> Finding | Outcome:
        if isinstance(returned, Scored | Skipped | Failed):
            outcome = checked_outcome(returned, self.type)
            if isinstance(outcome, Scored) and (self.strict or self.decides):
                return Finding(outcome.value, outcome.explanation, outcome.details)
            return outcome
        if in_range(returned):
            return Finding(float(returned), "")
        if isinstance(returned, int | float):
            return Failed("ValueError", f"{self.type} returned {returned!r}, not a number in [0, 1]")
        return Failed("TypeError", f"{self.type} returned a {type(returned).__name__}, not an outcome, a number or a bool")


_OUTCOMES: Final = (Scored, Skipped, Failed, int, float)  # a bool is an int
_AWAITABLE: Final = (Awaitable, Coroutine)
_SIMPLE: Final[Mapping[type, str]] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    list: "a list",
    dict: "a mapping",
    NoneType: "null",
}
_EXAMPLES: Final[Mapping[type, str]] = {bool: "true", int: "3", float: "0.5", str: "some-text", list: "[a, b]", dict: "{a: 1}"}


def refused_return(thing: Any) -> str:
    """What a scorer declares to return, if that can be neither an outcome, a number nor a bool; else ""."""
    called = thing if inspect.isfunction(thing) else getattr(thing, "__call__", None)  # noqa: B004 - of a class, its instances'
    declared = _hints(called).get("return", Any)
    return "" if _may_be_outcome(declared) else _written(declared)


def wrong_parameters(thing: Any, given: Mapping[str, Any]) -> list[str]:
    """A line for each given parameter whose value the annotation of the function, or of the class's `__init__`, excludes."""
    hints = _hints(thing.__init__ if inspect.isclass(thing) else thing)
    return [
        f"{key}: {redacted_repr(value)} is not {_expected(hints[key])}; write e.g. {key}: {_example(hints[key])}"
        for key, value in given.items()
        if key in hints and not _fits(value, hints[key])
    ]


def _hints(called: Callable[..., Any] | None) -> dict[str, Any]:
    try:
        return get_type_hints(called) if called is not None else {}
    except Exception:  # noqa: BLE001 - an annotation may name anything, also what is not there yet
        return {}


def _may_be_outcome(declared: Any) -> bool:
    origin = get_origin(declared)
    if origin in (Union, UnionType):
        return any(map(_may_be_outcome, get_args(declared)))
    if origin in _AWAITABLE:
        return _may_be_outcome(get_args(declared)[-1])
    if origin is Literal:
        return any(isinstance(each, int) for each in get_args(declared))
    kind = origin or declared
    return not isinstance(kind, type) or issubclass(kind, _OUTCOMES) or kind in (Any, object, *_AWAITABLE)


def _fits(value: Any, declared: Any) -> bool:
    origin = get_origin(declared)
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in get_args(declared))
    if origin is Literal:
        return any(type(value) is type(each) and value == each for each in get_args(declared))
    if origin is list and isinstance(value, list):
        return all(_fits(each, get_args(declared)[0]) for each in value)
    kind = origin or declared
    if kind not in _SIMPLE:
        return True
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, int | float) if kind is float else isinstance(value, kind)


def _expected(declared: Any) -> str:
    if get_origin(declared) is Literal:
        return f"one of {', '.join(map(str, get_args(declared)))}"
    if get_origin(declared) in (Union, UnionType):
        return " or ".join(dict.fromkeys(map(_expected, get_args(declared))))
    return _SIMPLE.get(get_origin(declared) or declared, _written(declared)) + "".join(_items(declared))


def _items(declared: Any) -> Iterator[str]:
    if get_origin(declared) is list:
        yield f" whose items are each {_expected(get_args(declared)[0])}"


def _example(declared: Any) -> str:
    if get_origin(declared) is Literal:
        return str(get_args(declared)[0])
    kinds = get_args(declared) if get_origin(declared) in (Union, UnionType) else (declared,)
    return next((_EXAMPLES[kind] for each in kinds if (kind := get_origin(each) or each) in _EXAMPLES), "null")


def _written(declared: Any) -> str:
    if declared is NoneType:
        return "None"
    return declared.__name__ if isinstance(declared, type) and get_origin(declared) is None else str(declared)


def is_coroutine_function(function: object) -> bool:
    """Whether it is a coroutine function, or an object that is called like one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(type(function), "__call__", None))  # noqa: B004 - not whether, but how


def run_coroutine(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """What the coroutine returns.

    Raises:
        RuntimeError: an event loop runs in this thread; then the coroutine was not begun.
    """
    # Loaded only where a scorer is a coroutine: asyncio costs more to import than this package.
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    coroutine.close()
    raise RuntimeError("an event loop is running in this thread; await scorer.evaluate(trajectory) instead")


def is_own_scorer(scorer: Scorer) -> bool:
    """Whether the scorer's code is this package's: not a user's function, class or object."""
    return type(scorer).__module__.startswith("otel_eval.") and not isinstance(scorer, FunctionScorer)


def private_copy(trajectory: Trajectory) -> Trajectory:
    """The trajectory with copies of every JSON value that could be changed in place.

    Arguments, results, input, output and attributes are shared by all scorers of a run. The cost is proportional to
    what was recorded; a value nested deeper than Python recurses raises `RecursionError`, which fails the scorer's result.
    """
    return replace(
        trajectory,
        calls=tuple(map(_call, trajectory.calls)),
        input=_copied(trajectory.input),
        output=_copied(trajectory.output),
        attributes=_copied(dict(trajectory.attributes)),
        resource=_copied(dict(trajectory.resource)),
    )


def _call(call: ToolCall) -> ToolCall:
    if not isinstance(call.arguments, dict | list) and not isinstance(call.result, dict | list):
        return call
    return replace(call, arguments=_copied(call.arguments), result=_copied(call.result))


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    return [_copied(each) for each in value] if isinstance(value, list) else value
